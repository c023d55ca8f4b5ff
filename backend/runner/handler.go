package runner

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// call is one request on its way through the Server.
type call struct {
	srv *Server
	sb  *sandbox
	w   http.ResponseWriter
	r   *http.Request
	pid string // the process id in the path, not checked yet

	query url.Values
}

// route is how one method of one path is served. A handler that returns an error has written nothing.
type route struct {
	serve func(*call) error
	work  bool // it pins the sandbox, and is activity unless it fails
}

// table returns the routes below /v1/sandboxes/{id}/; * stands for a process id.
func (s *Server) table() map[string]map[string]route {
	kill := route{(*call).kill, true}
	return map[string]map[string]route{
		"exec":               {http.MethodPost: {(*call).exec, true}},
		"processes":          {http.MethodPost: {(*call).start, true}, http.MethodGet: {(*call).list, false}},
		"processes/*":        {http.MethodGet: {(*call).get, false}, http.MethodDelete: kill},
		"processes/*:kill":   {http.MethodPost: kill},
		"processes/*:signal": {http.MethodPost: {(*call).signal, true}},
		"processes/*/output": {http.MethodGet: {(*call).output, true}},
		"processes/*/stdin":  {http.MethodPost: {(*call).writeStdin, true}},
		"files/read":         {http.MethodGet: {(*call).readFile, true}},
		"files/write":        {http.MethodPut: {(*call).writeFile, true}},
		"files/list":         {http.MethodGet: {(*call).listFiles, false}},
		"files/stat":         {http.MethodGet: {(*call).statFile, false}},
		"files/delete":       {http.MethodDelete: {(*call).deleteFile, true}},
		"files/mkdir":        {http.MethodPost: {(*call).makeDir, true}},
		"activity":           {http.MethodGet: {(*call).activity, false}},
	}
}

// serve answers in a fixed order: is there such a route, may this client use it, is there such a sandbox. Nothing of the body is read
// before that.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := &call{srv: s, w: w, r: r}
	if r.URL.Path == "/health" {
		c.health()
		return
	}
	id, shape, ok := c.parsePath()
	methods := s.routes[shape]
	route, known := methods[r.Method]
	switch {
	case !ok || methods == nil:
		c.refuse(errNoRoute)
	case !known:
		w.Header().Set("Allow", allowed(methods))
		c.refuse(errMethod)
	case !s.authorized(r):
		w.Header().Set("WWW-Authenticate", "Bearer")
		c.refuse(errUnauthorized)
	default:
		c.serveIn(id, route)
	}
}

// parsePath returns the id of the sandbox and the key of the route. It takes the path as it was sent, so that an escaped slash or dot
// is a part of an id and no way to another route.
func (c *call) parsePath() (id, shape string, ok bool) {
	rest, ok := strings.CutPrefix(c.r.URL.EscapedPath(), "/v1/sandboxes/")
	if !ok {
		return "", "", false
	}
	rawID, rest, _ := strings.Cut(rest, "/")
	id, err := url.PathUnescape(rawID)
	if err != nil {
		return "", "", false
	}
	rawPID, below, isProcess := strings.Cut(rest, "processes/")
	if !isProcess || rawPID != "" {
		return id, rest, true
	}
	rawPID, below, _ = strings.Cut(below, "/")
	if below != "" {
		below = "/" + below
	} else if at := strings.LastIndexByte(rawPID, ':'); at >= 0 {
		rawPID, below = rawPID[:at], rawPID[at:]
	}
	c.pid, err = url.PathUnescape(rawPID)
	return id, "processes/*" + below, err == nil
}

func allowed(methods map[string]route) string {
	names := make([]string, 0, len(methods))
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// authorized compares in constant time, and hashes so that not even the length shows.
func (s *Server) authorized(r *http.Request) bool {
	if s.token == sha256.Sum256(nil) {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], s.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

func (c *call) serveIn(id string, route route) {
	c.sb = c.srv.sandbox(id)
	if c.sb == nil {
		c.refuse(errNoSandbox)
		return
	}
	if !c.sb.enter() {
		c.refuse(errSandboxGone)
		return
	}
	defer c.sb.leave()
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil { // what is wrong with one parameter would be dropped with it
		c.refuse(badRequest("query: %v", err))
		return
	}
	if !route.work {
		c.finish(route.serve(c))
		return
	}
	worked := false
	c.sb.idle.pin()
	defer func() { c.sb.idle.unpin(worked) }()
	err = route.serve(c)
	worked = err == nil
	c.finish(err)
}

func (c *call) finish(err error) {
	if err != nil {
		c.refuse(err)
	}
}

func (c *call) health() {
	if c.r.Method != http.MethodGet {
		c.w.Header().Set("Allow", http.MethodGet)
		c.refuse(errMethod)
		return
	}
	h := wire.Health{Protocol: c.srv.cfg.Protocol, Version: c.srv.cfg.Version, Confinement: c.srv.cfg.Confinement}
	switch {
	case h.Confinement != nil:
	case c.srv.cfg.Spawner == nil:
		h.Confinement = []string{}
	default:
		h.Confinement = c.srv.cfg.Spawner.Abilities().Sentences()
	}
	c.answer(http.StatusOK, h)
}

func (c *call) activity() error {
	c.answer(http.StatusOK, c.sb.activity())
	return nil
}
