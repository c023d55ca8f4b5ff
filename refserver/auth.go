package refserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// auth tells who sends a request. It keeps no sandbox's token: each is derived again when it is shown.
type auth struct {
	open  bool
	admin [sha256.Size]byte // of the admin token, so that a compare tells nothing of its length
	key   []byte
}

func newAuth(cfg Config) *auth {
	return &auth{open: cfg.NoAuth, admin: sha256.Sum256([]byte(cfg.Token)), key: append([]byte(nil), cfg.Key...)}
}

// isAdmin says whether r carries the admin token.
func (a *auth) isAdmin(r *http.Request) bool {
	if a.open {
		return true
	}
	scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	sum := sha256.Sum256([]byte(strings.TrimLeft(given, " ")))
	return subtle.ConstantTimeCompare(sum[:], a.admin[:]) == 1
}

// instanceOf returns the instance of sandbox id that the sandbox token of r stands for. Authorization, where sent, decides alone.
func (a *auth) instanceOf(r *http.Request, id string) (string, bool) {
	given := r.Header.Get(wire.TokenHeader)
	if given == "" || r.Header.Get("Authorization") != "" {
		return "", false
	}
	instance, _, ok := strings.Cut(given, "~")
	if !ok {
		return "", false
	}
	want := a.sandboxToken(backend.Ref{ID: id, Instance: instance})
	return instance, subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// sandboxToken returns the token of one instance. It names the instance, so that a forged one is refused without a look-up.
func (a *auth) sandboxToken(ref backend.Ref) string {
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte("keepwell sandbox token\x00" + ref.ID + "\x00" + ref.Instance))
	return ref.Instance + "~" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
