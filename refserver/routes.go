package refserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// access says whose token opens a route.
type access uint8

const (
	forAdmin   access = iota // the admin token
	forSandbox               // that, or the token of the sandbox that the path names
	forAll                   // none is needed
)

// call is one request on its way through the server.
type call struct {
	route    *route
	id       string // of the sandbox
	process  string
	instance string // that the request is for, where the token says so; "": whichever there is
}

// route is one line of the API. A segment of its path is a word, {id} or {process}, with a verb after it where the route has one.
type route struct {
	method, path string
	access       access
	serve        func(*Server, http.ResponseWriter, *http.Request, *call) error

	body    bool                     // serve reads it; without, there is nothing in it for anybody
	creates bool                     // a sandbox, which a server that drains does not
	file    bool                     // it is a file, which has a limit of its own
	starts  bool                     // a process, which gets an id from here
	lists   bool                     // processes
	follows func(*http.Request) bool // the stream goes on until the process ends; nil: there is no stream

	segments []string // of path
}

func newRoutes() []route {
	const sandbox = "/v1/sandboxes/{id}"
	in := func(rt route) route {
		rt.path, rt.access, rt.serve = sandbox+rt.path, forSandbox, (*Server).forward
		return rt
	}
	routes := []route{
		{method: "GET", path: "/health", access: forAll, serve: (*Server).getHealth},
		{method: "GET", path: "/ready", access: forAll, serve: (*Server).getReady},
		{method: "POST", path: "/v1/drain", serve: (*Server).postDrain},
		{method: "GET", path: "/v1/drain", serve: (*Server).getDrain},
		{method: "POST", path: "/v1/sandboxes", body: true, creates: true, serve: (*Server).postSandbox},
		{method: "GET", path: "/v1/sandboxes", serve: (*Server).listSandboxes},
		{method: "GET", path: sandbox, serve: (*Server).getSandbox},
		{method: "DELETE", path: sandbox, serve: (*Server).deleteSandbox},
		{method: "POST", path: sandbox + ":stop", serve: (*Server).postStop},

		in(route{method: "POST", path: "/exec", body: true, starts: true, follows: always}),
		in(route{method: "POST", path: "/processes", body: true, starts: true}),
		in(route{method: "GET", path: "/processes", lists: true}),
		in(route{method: "GET", path: "/processes/{process}"}),
		in(route{method: "DELETE", path: "/processes/{process}"}),
		in(route{method: "POST", path: "/processes/{process}:kill"}),
		in(route{method: "POST", path: "/processes/{process}:signal", body: true}),
		in(route{method: "GET", path: "/processes/{process}/output", follows: asked}),
		in(route{method: "POST", path: "/processes/{process}/stdin", body: true}),

		in(route{method: "GET", path: "/files/read"}),
		in(route{method: "PUT", path: "/files/write", body: true, file: true}),
		in(route{method: "GET", path: "/files/list"}),
		in(route{method: "GET", path: "/files/stat"}),
		in(route{method: "DELETE", path: "/files/delete"}),
		in(route{method: "POST", path: "/files/mkdir"}),
	}
	for i := range routes {
		routes[i].segments = strings.Split(routes[i].path, "/")[1:]
	}
	return routes
}

func always(*http.Request) bool { return true }

// asked says whether the stream goes on until the process ends, so that anything less is a loss.
func asked(r *http.Request) bool {
	follow, _ := flag(r, "follow")
	return follow
}

// match returns the call that a request is, or what its path allows instead of its method; neither for an unknown path.
func match(routes []route, r *http.Request) (c call, allowed []string) {
	segments, ok := split(r.URL)
	if !ok {
		return call{}, nil
	}
	for i := range routes {
		rt := &routes[i]
		c, ok := rt.match(segments)
		if !ok {
			continue
		}
		if r.Method == rt.method || r.Method == http.MethodHead && rt.method == http.MethodGet && rt.access != forSandbox {
			return c, nil
		}
		allowed = append(allowed, rt.method)
	}
	slices.Sort(allowed)
	return call{}, allowed
}

// split returns the segments of a path, decoded one by one, so that an encoded slash separates nothing.
func split(u *url.URL) ([]string, bool) {
	path, ok := strings.CutPrefix(u.EscapedPath(), "/")
	if !ok {
		return nil, false
	}
	segments := strings.Split(path, "/")
	for i, seg := range segments {
		if !strings.Contains(seg, "%") {
			continue
		}
		decoded, err := url.PathUnescape(seg)
		if err != nil {
			return nil, false
		}
		segments[i] = decoded
	}
	return segments, true
}

func (rt *route) match(segments []string) (call, bool) {
	if len(segments) != len(rt.segments) {
		return call{}, false
	}
	c := call{route: rt}
	for i, want := range rt.segments {
		name, verb, isVariable := strings.Cut(want, "}")
		if !isVariable {
			if want != segments[i] {
				return call{}, false
			}
			continue
		}
		value, ok := strings.CutSuffix(segments[i], verb)
		if !ok || value == "" || strings.Contains(value, ":") {
			return call{}, false
		}
		if name == "{id" {
			c.id = value
		} else {
			c.process = value
		}
	}
	return c, true
}
