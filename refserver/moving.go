package refserver

import (
	"sync"

	"github.com/keepwell-go/keepwell/backend"
)

// moving has the sandboxes that are on their way in or out or being stopped, which the registry does not show.
type moving struct {
	mu    sync.Mutex // guards boxes
	boxes map[*box]struct{}
}

// show lists sb in a state until the function that it returns is called.
func (m *moving) show(sb backend.Sandbox, state string) (hide func()) {
	sb.Env = nil // not to be kept longer than the create needs it
	b := &box{Sandbox: sb, state: state}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boxes == nil {
		m.boxes = make(map[*box]struct{})
	}
	m.boxes[b] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.boxes, b)
	}
}

// state returns what goes on with id, "" if nothing does.
func (m *moving) state(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.boxes {
		if b.ID == id {
			return b.state
		}
	}
	return ""
}

func (m *moving) all() (all []*box) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.boxes {
		all = append(all, b)
	}
	return all
}
