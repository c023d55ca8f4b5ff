package quota

import (
	"fmt"
	"math"
)

// charge is what one claim uses of one limit.
type charge struct {
	key  string
	cost int64
	max  int64 // as asked for this claim; of no meaning once it is admitted
}

// price appends what c costs to buf, one charge a limit.
func (l *Ledger[K, C]) price(buf []charge, c C) []charge {
	for i := range l.limits {
		lim := &l.limits[i]
		ch := charge{cost: 1, max: lim.Max}
		if lim.Key != nil {
			ch.key = lim.Key(c)
		}
		if lim.Cost != nil {
			ch.cost = lim.Cost(c)
		}
		if ch.cost < 0 {
			panic(fmt.Sprintf("quota: limit %q: negative cost %d", lim.Name, ch.cost))
		}
		if lim.MaxFor != nil {
			ch.max = max(0, lim.MaxFor(ch.key))
		}
		buf = append(buf, ch)
	}
	return buf
}

// chargeLocked makes s use what c costs.
func (l *Ledger[K, C]) chargeLocked(s *slot[K, C], c C, charges []charge) {
	s.claim = c
	s.charges = append(s.charges[:0], charges...)
	for i, ch := range s.charges {
		if ch.cost > 0 {
			l.used[i][ch.key] = sum(l.used[i][ch.key], ch.cost)
		}
	}
}

// refundLocked gives back what s was charged.
func (l *Ledger[K, C]) refundLocked(s *slot[K, C]) {
	for i, ch := range s.charges {
		used := l.used[i][ch.key]
		left := used - ch.cost
		if used == math.MaxInt64 { // perhaps a sum that was cut
			left = l.othersLocked(s, i)
		}
		if left > 0 {
			l.used[i][ch.key] = left
		} else {
			delete(l.used[i], ch.key)
		}
	}
}

// othersLocked adds up anew what all but s use of a limit under the key of s.
func (l *Ledger[K, C]) othersLocked(s *slot[K, C], limit int) (used int64) {
	for _, o := range l.slots {
		if o != s && o.charges[limit].key == s.charges[limit].key {
			used = sum(used, o.charges[limit].cost)
		}
	}
	return used
}

// sum adds two costs. Adoptions are not bounded by a limit; so that a sum cannot overflow and read as room, it is cut.
func sum(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
