package refserver

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// lowerBase32 spells ids in characters that fit a DNS label and can be read aloud.
func lowerBase32(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails, by its contract
	return lowerBase32(b)
}

func newSandboxID() string { return "sbx-" + random(10) }  // 16 characters
func newInstance() string  { return random(16) }           // 26
func newProcessID() string { return "proc_" + random(16) } // 26
