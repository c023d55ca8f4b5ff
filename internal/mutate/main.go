// Command mutate measures how much the tests of a package notice: it changes the code in one small place at a time and counts
// the changes that no test fails for.
//
//	go run ./internal/mutate ./quota            every mutation of one package
//	go run ./internal/mutate -sample 40 ./...   a seeded sample of each
//
// All mutations of a package are compiled into one test binary and chosen by an environment variable, so that each costs one
// run of the tests and no compilation. Mutations that are bound to a numbered rule stand in named.go and are always run.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	sample := flags.Int("sample", 0, "mutations to try for each package; 0 tries all")
	seed := flags.Uint64("seed", 1, "of the sample")
	jobs := flags.Int("jobs", 2, "test runs at once")
	goal := flags.Float64("goal", 95, "percentage of all mutations that must be killed; the survivors must be explained")
	only := flags.String("only", "", "try only mutations whose name contains this")
	if flags.Parse(args) != nil {
		return 2
	}
	failed := false
	for _, dir := range flags.Args() {
		r, err := measure(ctx, dir, *sample, *seed, *jobs, *only)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutate: %s: %v\n", dir, err)
			return 1
		}
		r.print(os.Stdout)
		failed = failed || r.percent() < *goal || len(r.unexplained) > 0 && *sample == 0
	}
	if failed {
		return 1
	}
	return 0
}

// report is what came of one package.
type report struct {
	dir                   string
	tried, killed         int
	explained             int
	unexplained, stale    []string
	named                 int // mutations of named.go that were tried
	mutationsInThePackage int
}

// percent is the share of the tried mutations that a test fails for.
func (r report) percent() float64 {
	if r.tried == 0 {
		return 100
	}
	return 100 * float64(r.killed) / float64(r.tried)
}

func (r report) print(w *os.File) {
	fmt.Fprintf(w, "%-12s %4d of %4d mutations tried, %4d killed (%.1f %%), %d survivors explained, %d not; %d more named by a rule\n",
		r.dir, r.tried, r.mutationsInThePackage, r.killed, r.percent(), r.explained, len(r.unexplained), r.named)
	for _, name := range r.unexplained {
		fmt.Fprintln(w, "  survived:", name)
	}
	for _, name := range r.stale {
		fmt.Fprintln(w, "  explained, but killed or gone:", name)
	}
}

// measure tries the mutations of the package in dir.
func measure(ctx context.Context, dir string, sample int, seed uint64, jobs int, only string) (report, error) {
	dir = strings.TrimPrefix(strings.TrimSuffix(dir, "/"), "./")
	pkg, err := load(dir)
	if err != nil {
		return report{}, err
	}
	bin, err := build(ctx, pkg)
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(bin.scratch)
	chosen := slices.DeleteFunc(slices.Clone(pkg.mutants), func(m mutant) bool { return !strings.Contains(m.name, only) })
	if sample > 0 && sample < len(chosen) {
		rng := rand.New(rand.NewPCG(seed, seed))
		rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:sample]
	}
	survivors, err := bin.try(ctx, chosen, jobs)
	if err != nil {
		return report{}, err
	}
	r := report{dir: dir, mutationsInThePackage: len(pkg.mutants), tried: len(chosen), killed: len(chosen) - len(survivors)}
	// A rule's own mutation is never explained away.
	if r.named, r.unexplained, err = tryNamed(ctx, namedMutations(), dir, only, 4*bin.limit); err != nil {
		return report{}, err
	}
	reasons, err := readExplained()
	if err != nil {
		return report{}, err
	}
	for _, m := range survivors {
		if reasons[dir+" "+m.name] != "" {
			r.explained++
		} else {
			r.unexplained = append(r.unexplained, m.name)
		}
	}
	if sample == 0 && only == "" {
		r.stale = stale(reasons, dir, survivors)
	}
	return r, nil
}
