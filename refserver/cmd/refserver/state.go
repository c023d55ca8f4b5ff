package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keepwell-go/keepwell/refserver/client"
)

// tokenVariable may carry the token of a client command, since an argument would show it to every user of the machine.
const tokenVariable = envPrefix + "_TOKEN"

// Files of the state directory that the commands share.
const (
	tokenFile = "token"
	keyFile   = "key"
)

// stateDir returns the absolute state directory: dir, or the default of this user.
func stateDir(dir string) (string, error) {
	if dir == "" {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("no state directory: %w; give --state", err)
			}
			base = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(base, "keepwell")
	}
	return filepath.Abs(dir)
}

// makeStateDir makes dir, for this user alone. It refuses one that others may be using, such as /tmp, since they would be shut out
// of it.
func makeStateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w; --state names another", err)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	ours := func(e fs.DirEntry) bool { return slices.Contains([]string{tokenFile, keyFile, "sandboxes"}, e.Name()) }
	if fi.Mode().Perm()&0o077 != 0 && len(entries) > 0 && !slices.ContainsFunc(entries, ours) {
		return fmt.Errorf("state directory: %s is open to other users and holds what is not ours, such as %s: --state must name a directory that is for nothing else",
			dir, entries[0].Name())
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return nil
}

// tmpSuffix ends the name of a secret that is not written yet.
const tmpSuffix = ".new"

// secret reads the secret kept in a file of the state directory and makes one where there is none yet. Two servers that start
// at once agree on it: a link appears whole or not at all, and only for the first.
func secret(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	s, err := readSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		s, err = makeSecret(dir, name)
	}
	if err == nil {
		err = clearSecrets(dir, name)
	}
	return s, err
}

func makeSecret(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	tmp, err := os.CreateTemp(dir, name+".*"+tmpSuffix)
	if err != nil {
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	defer os.Remove(tmp.Name())
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	_, err = tmp.WriteString(base64.RawURLEncoding.EncodeToString(raw) + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	err = os.Link(tmp.Name(), path)
	if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) { // the latter: cleared, by one that was faster
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	return readSecret(path)
}

// clearSecrets removes what servers that were killed before they linked it have left; nobody needs it once there is a secret.
func clearSecrets(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), name+".") || !strings.HasSuffix(e.Name(), tmpSuffix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("state directory: %w", err)
		}
	}
	return nil
}

func readSecret(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(b))
	if s == "" {
		return "", fmt.Errorf("%s is empty: remove it, and a new one is made", path)
	}
	return s, nil
}

// dial returns a client for the server of the state directory, or for the one that the flags name.
func (c *cli) dial(f clientFlags) (*client.Client, error) {
	dir, err := stateDir(c.State)
	if err != nil {
		return nil, err
	}
	base := f.Server
	if base == "" {
		base, err = findServer(dir)
		if err != nil {
			return nil, err
		}
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	token, err := f.token(dir)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return &client.Client{Base: base, Token: token}, nil
}

// token returns the token of the file that is named, of the variable, or of the state directory, in this order. Without any it is empty:
// a server may ask for none.
func (f clientFlags) token(dir string) (string, error) {
	if f.TokenFile != "" {
		return readSecret(f.TokenFile)
	}
	if token := os.Getenv(tokenVariable); token != "" {
		return token, nil
	}
	token, err := readSecret(filepath.Join(dir, tokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return token, err
}
