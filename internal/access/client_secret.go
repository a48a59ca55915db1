package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// ClientSecrets makes and checks secrets for browsers and apps of end users. A secret holds what it
// is for, signed: nothing is stored. It cannot be revoked, so that it should end soon.
type ClientSecrets struct {
	Key []byte // of the store, the same on every server
	Now func() time.Time
}

// ClientSecret is what a secret is for.
type ClientSecret struct {
	Project string `json:"p"`
	Agent   string `json:"a,omitempty"` // the one call that it opens; "" for a new call each time
	User    string `json:"u,omitempty"` // the caller
	Until   int64  `json:"e"`           // Unix seconds
	// Session is the session that its calls begin with; nil for none.
	Session json.RawMessage `json:"s,omitempty"`
}

// ClientSecretPrefix begins every client secret, as OpenAI's.
const ClientSecretPrefix = "ek_"

// Mint returns a secret.
func (c ClientSecrets) Mint(s ClientSecret) (string, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fault.Wrap(fault.Internal, err, "failed to encode a client secret")
	}
	body := base64.RawURLEncoding.EncodeToString(raw)
	return ClientSecretPrefix + body + "." + c.sign(body), nil
}

func (c ClientSecrets) sign(body string) string {
	h := hmac.New(sha256.New, c.Key)
	h.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Open returns what a secret is for. It returns fault.Unauthenticated for one that Mint did not
// make, or that has ended.
func (c ClientSecrets) Open(secret string) (s ClientSecret, err error) {
	rest, ok := strings.CutPrefix(secret, ClientSecretPrefix)
	body, signature, cut := strings.Cut(rest, ".")
	if !ok || !cut || !hmac.Equal([]byte(signature), []byte(c.sign(body))) {
		return s, fault.New(fault.Unauthenticated, "the client secret is not one of this server")
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return s, fault.Wrap(fault.Unauthenticated, err, "the client secret cannot be read")
	}
	if c.Now().Unix() >= s.Until {
		return s, fault.New(fault.Unauthenticated, "the client secret has expired")
	}
	return s, nil
}
