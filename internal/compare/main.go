// Command compare measures the primitives beside what they replace, in one run, and prints a table in Markdown.
//
//	go run ./internal/compare
//
// Ours and the peer take turns, many short rounds each, and the fastest round of each counts, so that what else the machine does
// spoils few of them: the ratio is to be trusted more than the numbers. This module is never tagged, so that its peers are
// nobody's dependencies.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// row is one line of the table: our code beside one peer.
type row struct {
	path, peer  string
	ours, other func(b *testing.B)
	goal        float64 // ours ÷ other, at most
}

func main() {
	testing.Init()
	rounds := flag.Int("rounds", 60, "rounds of each side")
	only := flag.String("only", "", "only rows whose path contains this")
	flag.Parse()
	if err := flag.Set("test.benchtime", "10ms"); err != nil {
		panic(err)
	}
	fmt.Printf("%s, %d cores, %s\n\n", runtime.Version(), runtime.NumCPU(), peers())
	fmt.Println("| path | ours | peer | | ratio | goal | |\n|---|---|---|---|---|---|---|")
	for _, r := range rows() {
		if strings.Contains(r.path, *only) {
			r.print(*rounds)
		}
	}
	fmt.Println()
	if strings.Contains("lists", *only) || *only == "" {
		printLists(os.Stdout)
	}
}

func rows() (all []row) {
	all = append(all, registryRows()...)
	all = append(all, quotaRows()...)
	all = append(all, sweepRows()...)
	all = append(all, probeRows()...)
	return append(all, bodylimitRows()...)
}

func (r row) print(rounds int) {
	var ours, other testing.BenchmarkResult
	for i := range rounds {
		a, b := testing.Benchmark(r.ours), testing.Benchmark(r.other)
		if i == 0 || nanos(a) < nanos(ours) {
			ours = a
		}
		if i == 0 || nanos(b) < nanos(other) {
			other = b
		}
	}
	ratio := nanos(ours) / nanos(other)
	verdict := "met"
	if ratio > r.goal {
		verdict = "missed"
	}
	fmt.Printf("| %s | %s | %s | %s | %.2f | ≤ %.2f | %s |\n", r.path, show(ours), r.peer, show(other), ratio, r.goal, verdict)
}

func nanos(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

func show(r testing.BenchmarkResult) string {
	return fmt.Sprintf("%.0f ns, %d allocs", nanos(r), r.AllocsPerOp())
}

// peers names the versions that were measured, as the build knows them.
func peers() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "versions unknown"
	}
	var names []string
	for _, d := range info.Deps {
		for _, peer := range []string{"otter", "resenje", "x/sync", "puddle", "cron", "alexliesenfeld", "hellofresh"} {
			if strings.Contains(d.Path, peer) {
				names = append(names, d.Path+" "+d.Version)
			}
		}
	}
	return strings.Join(names, ", ")
}
