package refserver

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTheDocumentOfTheAPIHasEveryRouteAndNoOther(t *testing.T) {
	want := map[string]bool{}
	for _, rt := range newRoutes() {
		path := rt.path
		if rt.access == forSandbox {
			path = strings.TrimPrefix(path, "/v1/sandboxes/{id}") // as the tables of processes and files have it
		}
		want[rt.method+" "+path] = true
	}
	for _, found := range regexp.MustCompile("(?m)^\\| `([A-Z]+ [^`]+)` \\|").FindAllStringSubmatch(document(t), -1) {
		if !want[found[1]] {
			t.Errorf("there is no route %s", found[1])
		}
		delete(want, found[1])
	}
	for route := range want {
		t.Errorf("the document lacks %s", route)
	}
}

func TestTheDocumentOfTheAPIHasEveryCode(t *testing.T) {
	source, err := os.ReadFile("../backend/runner/wire/wire.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^\tCode\w+ += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(codes) < 20 {
		t.Fatalf("found %d codes", len(codes))
	}
	for _, code := range codes {
		if !strings.Contains(document(t), "`"+code[1]+"`") {
			t.Errorf("the document lacks the code %s", code[1])
		}
	}
}

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
