package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// serversDir is the directory of the state directory in which each server that runs has a file named like its address. They
// are files of their own, so that a server that comes or goes never touches what leads to another.
const serversDir = "servers"

// dialTime is how long a server may take to accept a connection of a client command that looks for one.
const dialTime = 2 * time.Second

// listAddress makes the server findable for client commands; the func returned takes that back. Servers that were killed could
// not do so themselves: their addresses are cleared away here.
func listAddress(dir string, addr net.Addr) (unlist func(), err error) {
	list := filepath.Join(dir, serversDir)
	if err := os.MkdirAll(list, 0o700); err != nil {
		return nil, err
	}
	others, err := addresses(dir)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if other != addr.String() && errors.Is(knock(other), syscall.ECONNREFUSED) {
			_ = os.Remove(filepath.Join(list, other)) // another server may have been faster
		}
	}
	own := filepath.Join(list, addr.String())
	_ = os.Remove(own) // of a killed server on the same port: the list is ordered by age
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(own) }, nil
}

// findServer returns the address of the server of the state directory that has run longest, of those that accept connections.
func findServer(dir string) (string, error) {
	list, err := addresses(dir)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("no server runs with the state directory %s: start one with `refserver`, or give --server", dir)
	}
	var refusals []error
	for _, addr := range list {
		err := knock(addr)
		if err == nil {
			return addr, nil
		}
		refusals = append(refusals, err)
	}
	return "", fmt.Errorf("no server answers at %s, and the state directory %s knows of no other: start one with `refserver`, or give --server (%w)",
		strings.Join(list, " or "), dir, errors.Join(refusals...))
}

// addresses returns the listed addresses, the oldest first.
func addresses(dir string) (list []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, serversDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	since := map[string]time.Time{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // or it has just been taken back
			since[e.Name()] = info.ModTime()
			list = append(list, e.Name())
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return since[a].Compare(since[b]) })
	return list, nil
}

// knock tells whether someone accepts connections at addr.
func knock(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, dialTime)
	if err != nil {
		return err
	}
	return conn.Close()
}
