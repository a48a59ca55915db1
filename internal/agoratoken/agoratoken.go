// Package agoratoken verifies Agora's AccessToken2, the tokens that begin with 007. Parse reads a
// Token, and Token.Verify checks its signature with the certificate of the app.
//
// A token is "007" and the base64 of compressed fields: the signature, the app ID, when the token
// was issued, for how long it is valid, a salt, and what it allows in each of Agora's services.
// Numbers are little-endian. The format is that of github.com/AgoraIO/Tools.
package agoratoken

import (
	"bytes"
	"compress/zlib"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"time"
)

// prefix begins every token of this version.
const prefix = "007"

// maxSize limits what a token expands to, in bytes. The longest real tokens have a few hundred.
const maxSize = 16 << 10

// The services that Parse reads, and the privilege in each that a Token needs.
const (
	serviceRTC       = 1
	serviceRTM       = 2
	privilegeJoinRTC = 1 // join a channel
	privilegeLogin   = 1 // log in to signaling
)

// The errors of this package.
var (
	ErrFormat    = errors.New("it is not an AccessToken2 of Agora")
	ErrServices  = errors.New("it must allow to join a channel (RTC) and to log in (RTM)")
	ErrSignature = errors.New("its signature does not fit the app certificate")
	ErrExpired   = errors.New("it has expired")
)

// Token is a token that was read. Nothing in it can be trusted before Verify.
type Token struct {
	AppID   string
	Channel string // "" = any
	UserID  string // of the RTC service; "" = any
	Issued  time.Time
	Expires time.Time // the earliest end of the token and of the privileges it needs

	issued, salt uint32
	signed       []byte // the fields that the signature covers
	signature    []byte
}

// Is reports whether a text looks like a token of this version.
func Is(s string) bool { return strings.HasPrefix(s, prefix) }

// Parse reads a token. It returns ErrFormat for a text that is none, and ErrServices for a token
// that does not allow what Agora's own REST API requires of callers: RTC and RTM together.
func Parse(s string) (Token, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, prefix))
	if err != nil || !Is(s) {
		return Token{}, ErrFormat
	}
	z, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		return Token{}, ErrFormat
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxSize+1))
	if err != nil || len(plain) > maxSize {
		return Token{}, ErrFormat
	}
	f := &fields{rest: plain}
	t := Token{signature: f.bytes()}
	t.signed = f.rest
	t.AppID, t.issued = string(f.bytes()), f.uint32()
	valid := f.uint32()
	t.salt = f.uint32()
	t.Issued = time.Unix(int64(t.issued), 0)
	t.Expires = t.after(valid)
	return t, t.readServices(f)
}

// after returns the time so many seconds after the token was issued.
func (t *Token) after(seconds uint32) time.Time {
	return t.Issued.Add(time.Duration(seconds) * time.Second)
}

// readServices reads the services up to RTM. Services have numbers in ascending order, so that
// those after it, which may have fields of any form, need not be read.
func (t *Token) readServices(f *fields) error {
	rtc, rtm, kind := false, false, uint16(0)
	for n := f.uint16(); n > 0 && kind < serviceRTM; n-- {
		kind = f.uint16()
		privileges := f.privileges()
		switch kind {
		case serviceRTC:
			t.Channel, t.UserID = string(f.bytes()), string(f.bytes())
			rtc = t.allows(privileges, privilegeJoinRTC)
		case serviceRTM:
			f.bytes() // the user's name
			rtm = t.allows(privileges, privilegeLogin)
		}
	}
	switch {
	case f.short:
		return ErrFormat
	case !rtc || !rtm:
		return ErrServices
	}
	return nil
}

// allows reports whether a privilege is among those of a service, and makes the token end with it.
// Privileges without an end of their own last as long as the token.
func (t *Token) allows(privileges map[uint16]uint32, needed uint16) bool {
	seconds, ok := privileges[needed]
	if end := t.after(seconds); ok && seconds != 0 && end.Before(t.Expires) {
		t.Expires = end
	}
	return ok
}

// Verify checks the signature with an app certificate, in constant time, and that the token is
// valid at a time. It returns ErrSignature or ErrExpired.
func (t Token) Verify(certificate string, now time.Time) error {
	key := sum(binary.LittleEndian.AppendUint32(nil, t.issued), []byte(certificate))
	key = sum(binary.LittleEndian.AppendUint32(nil, t.salt), key)
	if !hmac.Equal(sum(key, t.signed), t.signature) {
		return ErrSignature
	}
	if !now.Before(t.Expires) {
		return ErrExpired
	}
	return nil
}

// sum returns the HMAC-SHA256 of a text.
func sum(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// fields reads a token's fields one after the other. After the end of the token, short is set and
// all further fields are zero.
type fields struct {
	rest  []byte
	short bool
}

// next returns the next n bytes, or n zeros.
func (f *fields) next(n int) []byte {
	if n > len(f.rest) {
		f.rest, f.short = nil, true
		return make([]byte, n)
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) uint16() uint16 { return binary.LittleEndian.Uint16(f.next(2)) }
func (f *fields) uint32() uint32 { return binary.LittleEndian.Uint32(f.next(4)) }

// bytes returns a text, which has its length in front.
func (f *fields) bytes() []byte { return f.next(int(f.uint16())) }

// privileges returns the privileges of a service, each with the seconds until its end.
func (f *fields) privileges() map[uint16]uint32 {
	out := map[uint16]uint32{}
	for n := f.uint16(); n > 0 && !f.short; n-- {
		privilege := f.uint16()
		out[privilege] = f.uint32()
	}
	return out
}
