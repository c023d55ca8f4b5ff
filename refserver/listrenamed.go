package refserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// maxListing bounds what a legacy runner lists, in bytes.
const maxListing = 64 << 20

// listRenamed answers a page of the processes of a legacy runner. The order is that of the ids as clients see them, which the runner
// does not know, so each page is cut from the whole list.
func (s *Server) listRenamed(w http.ResponseWriter, r *http.Request, c *call, e entry) error {
	limit, cursor, err := pageOf(r)
	if err != nil {
		return err
	}
	out := s.onward(r, c, e.Value, nil)
	out.URL.RawQuery = ""
	resp, err := s.reach(r.Context(), out, e, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.passBody(w, r, c, resp, nil)
		return nil
	}
	all, err := readRecords(resp.Body)
	if err != nil {
		return s.lost(r.Context(), e, err)
	}
	if err := s.rename(r.Context(), e.Value, all); err != nil {
		return err
	}
	page, next := cut(all, limit, cursor)
	if next != "" {
		w.Header().Set(wire.NextCursor, next)
	}
	answer(w, http.StatusOK, page)
	return nil
}

// pageOf returns which page is asked for; limit 0 is all of it.
func pageOf(r *http.Request) (limit int, cursor string, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, "", badRequest("query: %v", err)
	}
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 {
			return 0, "", badRequest("limit must be a number not below 0, not %.40q", text)
		}
	}
	cursor = q.Get("cursor")
	if cursor != "" && wire.CheckProcessID(cursor) != nil {
		return 0, "", badRequest("cursor %.80q is none", cursor)
	}
	return limit, cursor, nil
}

func readRecords(from io.Reader) (all []record, err error) {
	lr := &io.LimitedReader{R: from, N: maxListing}
	err = json.NewDecoder(lr).Decode(&all)
	if lr.N == 0 && errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("more than %d bytes", maxListing)
	}
	if err != nil {
		return nil, fmt.Errorf("its list of processes: %w", err)
	}
	return all, nil
}

// rename gives each process that is bound its public id, at the cost of one read at most. No id is given twice.
func (s *Server) rename(ctx context.Context, b *box, all []record) error {
	var guests []string
	taken := make(map[string]bool, len(all))
	for _, rec := range all {
		id := rec.id()
		taken[id] = true
		if !assigned(id) && wire.CheckProcessID(id) == nil { // nothing else was ever bound
			guests = append(guests, id)
		}
	}
	if len(guests) == 0 {
		return nil
	}
	var public map[string]string
	err := s.stored(ctx, func(ctx context.Context) (err error) {
		public, err = s.bindings.Public(ctx, b.Ref, guests)
		return err
	})
	if err != nil {
		return err
	}
	for _, rec := range all {
		if id := public[rec.id()]; id != "" && !taken[id] {
			taken[id] = true
			rec.set("id", id)
		}
	}
	return nil
}

// cut returns the page after cursor, and the cursor of the next one if there is more.
func cut(all []record, limit int, cursor string) (page []record, next string) {
	page = make([]record, 0, len(all)) // an empty page is [], not null
	for _, rec := range all {
		if rec.id() > cursor {
			page = append(page, rec)
		}
	}
	slices.SortFunc(page, func(a, b record) int { return strings.Compare(a.id(), b.id()) })
	if limit > 0 && len(page) > limit {
		page = page[:limit]
		next = page[limit-1].id()
	}
	return page, next
}
