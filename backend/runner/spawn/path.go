package spawn

import "strings"

// defaultPath is searched when the command's environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// pathOf returns the PATH of an environment, in which a later entry wins.
func pathOf(env []string) string {
	path, set := "", false
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path, set = v, true
		}
	}
	if !set {
		return defaultPath
	}
	return path
}
