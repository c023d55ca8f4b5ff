package bodylimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// A handler takes one JSON value of at most 32 bytes. Its caller learns which of the things that can be wrong was.
func ExampleDecodeJSON() {
	limit := &bodylimit.Limiter{Max: 32, Strict: true}
	handler := func(w http.ResponseWriter, r *http.Request) {
		order, err := bodylimit.DecodeJSON[struct{ Item string }](limit, w, r)
		if limit.Refuse(w, r, err) {
			return
		}
		if err != nil { // the body broke off, and whoever still listens takes an answer of no words for a success
			http.Error(w, "the body could not be read", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "one %s, please", order.Item)
	}

	for _, body := range []string{`{"item":"tea"}`, `{"item":"tea"`, `{"item":"tea"}` + strings.Repeat(" ", 100)} {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 one tea, please
	// 400 {"error":"bodylimit: malformed body: unexpected EOF","code":"bad_request"}
	// 413 {"error":"bodylimit: body of 114 bytes is over the limit of 32 bytes","code":"payload_too_large"}
}

// A body whose length is not declared is refused by the handler that reads it, at the moment it passes the limit.
func ExampleLimiter_Handler() {
	limit := &bodylimit.Limiter{Max: 4}
	store := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if limit.Refuse(w, r, err) {
			return
		}
		if err != nil {
			http.Error(w, "the body could not be read", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "stored %d bytes", n)
	}))

	for _, body := range []string{"four", "fiver"} {
		w := httptest.NewRecorder()
		chunked := httptest.NewRequest("PUT", "/", io.MultiReader(strings.NewReader(body)))
		store.ServeHTTP(w, chunked)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 stored 4 bytes
	// 413 {"error":"bodylimit: body is over the limit of 4 bytes","code":"payload_too_large"}
}
