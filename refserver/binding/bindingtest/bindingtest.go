// Package bindingtest is the contract of a binding.Store in executable form.
//
// It prevents the fault of stores that are alike until it matters: one that hands a binding to the second of two writers, one that
// finds nothing because the start has expired, one that answers for the sandbox beside. Each Case is one promise, and the tests of
// this package have a wrong store for each of them.
//
//	func TestContract(t *testing.T) {
//		bindingtest.Run(t, func(t *testing.T) binding.Store { return binding.NewMemory() })
//	}
package bindingtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/refserver/binding"
)

// patience is how long one case may take.
const patience = time.Minute

// Case is one promise of the contract.
type Case struct {
	Name string // a sentence, without spaces
	Rule string // the numbers of the rules it proves, if any
	do   func(t *trace)
}

// Check returns what a store does otherwise than the case says, or nil. The store must be empty.
func (c Case) Check(ctx context.Context, s binding.Store) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := &trace{ctx: ctx, store: s}
	c.do(t)
	return t.result()
}

// Cases returns all cases, in a fixed order.
func Cases() []Case {
	return slices.Concat(lookups(), pages(), writes(), kept(), pruned(), boundaries(), incarnations(), calls())
}

// Run checks that each Store that open makes keeps the contract. Each case asks for one of its own, which must be empty; open sees
// to closing it.
func Run(t *testing.T, open func(t *testing.T) binding.Store) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Check(t.Context(), open(t)); err != nil {
				t.Errorf("%s: %v", c.Rule, err)
			}
		})
	}
	t.Run("AnySequenceOfCallsDoesWhatAPlainModelDoes", func(t *testing.T) { checkModel(t, open(t)) })
}
