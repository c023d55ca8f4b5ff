package main

import "runtime/debug"

// version returns the version that the build carries, such as v0.1.0 or (devel).
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
