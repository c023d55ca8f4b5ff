// Package keepwell is the map of the library; it has no code.
package keepwell
