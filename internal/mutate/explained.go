package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// explainedText holds a line for each mutation that no test can or should notice: package, name, tab, reason.
//
//go:embed explained.txt
var explainedText string

func readExplained() (map[string]string, error) {
	reasons := map[string]string{}
	for line := range strings.Lines(explainedText) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("explained.txt: no reason in %q", line)
		}
		reasons[name] = reason
	}
	return reasons, nil
}

// stale returns what is explained for dir and did not survive.
func stale(reasons map[string]string, dir string, survivors []mutant) (names []string) {
	for key := range reasons {
		name, ours := strings.CutPrefix(key, dir+" ")
		if ours && !slices.ContainsFunc(survivors, func(m mutant) bool { return m.name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
