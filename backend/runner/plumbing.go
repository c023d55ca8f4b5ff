package runner

import "os"

// plumbing is the three files a process is started with, and the server's ends of them.
type plumbing struct {
	theirs [3]*os.File // stdin, stdout, stderr
	ours   pipes
	stdin  *stdin   // nil without a pipe for it
	null   *os.File // which is shared
}

// newPlumbing opens what a process needs; null is its stdin unless piped. Without an error closeTheirs is due once the process was
// started or not, and closeOurs if it was not.
func newPlumbing(null *os.File, piped bool) (*plumbing, error) {
	pl := &plumbing{null: null}
	pl.theirs[0] = null
	err := pl.open(piped)
	if err != nil {
		pl.closeTheirs()
		pl.closeOurs()
		return nil, err
	}
	return pl, nil
}

func (pl *plumbing) open(piped bool) (err error) {
	for stream := range pl.ours {
		if pl.ours[stream], pl.theirs[1+stream], err = newPipe(true); err != nil {
			return err
		}
	}
	if !piped {
		return nil
	}
	end, theirs, err := newPipe(false)
	if err != nil {
		return err
	}
	pl.stdin, pl.theirs[0] = newStdin(end), theirs
	return nil
}

func (pl *plumbing) closeTheirs() {
	for _, f := range pl.theirs {
		if f != nil && f != pl.null {
			_ = f.Close()
		}
	}
}

func (pl *plumbing) closeOurs() {
	for _, f := range pl.ours {
		if f != nil {
			_ = f.Close()
		}
	}
	if pl.stdin != nil {
		pl.stdin.close()
	}
}
