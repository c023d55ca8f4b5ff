package binding_test

import (
	"testing"

	"github.com/keepwell-go/keepwell/refserver/binding"
	"github.com/keepwell-go/keepwell/refserver/binding/bindingtest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	bindingtest.Run(t, func(*testing.T) binding.Store { return binding.NewMemory() })
}

func TestAScopeKeepsTheContract(t *testing.T) {
	bindingtest.Run(t, func(*testing.T) binding.Store { return binding.Scope(binding.NewMemory(), "one") })
}
