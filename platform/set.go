package platform

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// Own is a profile that a project adds: one header, or one path into the body of requests and
// events.
type Own struct {
	Project string // "" = every project
	Name    string
	Header  string
	Path    string
}

// Set is all the profiles of a server. It is safe for concurrent use.
type Set struct {
	own     []Own
	sources []Source // of the platforms, in the order in which they are asked
	resends []Source // those of platforms that send their whole list each time
}

// NewSet makes a Set. It fails where an own profile has the name of a platform.
func NewSet(own []Own) (*Set, error) {
	s := &Set{own: own}
	for _, p := range Profiles() {
		s.sources = append(s.sources, p.Sources...)
		if p.Resends {
			s.resends = append(s.resends, p.Sources...)
		}
		if slices.ContainsFunc(own, func(o Own) bool { return o.Name == p.Name }) {
			return nil, fmt.Errorf("%q is the name of a profile that is there already", p.Name)
		}
	}
	return s, nil
}

// source returns an own profile as a Source.
func (o Own) source() Source { return Source{Name: o.Name, Header: o.Header, Path: o.Path} }

// of returns the project's own profiles.
func (s *Set) of(project string) []Source {
	var out []Source
	for _, o := range s.own {
		if o.Project == "" || o.Project == project {
			out = append(out, o.source())
		}
	}
	return out
}

// Key returns the key of the call that a chat request belongs to, by the project's own profiles
// first, then by those of the platforms. header returns the value of a header, member the JSON of a
// member of the body; both return nothing for what does not exist. It returns false if there is no
// key.
func (s *Set) Key(project string, header func(string) string, member func(string) []byte) (Key, bool) {
	for _, o := range s.own {
		if o.Project != "" && o.Project != project {
			continue
		}
		if k, ok := find(o.source(), header, member); ok {
			return k, true
		}
	}
	for _, src := range s.sources {
		if k, ok := find(src, header, member); ok {
			return k, true
		}
	}
	return Key{}, false
}

// Resends reports whether a chat request carries the key of a platform that sends its whole list
// each time. header and member are those of Key.
func (s *Set) Resends(header func(string) string, member func(string) []byte) bool {
	for _, src := range s.resends {
		if _, ok := find(src, header, member); ok {
			return true
		}
	}
	return false
}

// ignores reports whether a value identifies no call.
func (s Source) ignores(v string) bool { return s.Ignore != "" && strings.HasPrefix(v, s.Ignore) }

func find(s Source, header func(string) string, member func(string) []byte) (Key, bool) {
	if s.Header != "" {
		if v := idOf(header(s.Header)); v != "" && !s.ignores(v) {
			return newKey(s, v), true
		}
	}
	for path := s.Path; path != ""; {
		var one string
		one, path, _ = strings.Cut(path, "|")
		name, rest, nested := strings.Cut(one, ".")
		raw := member(name)
		if raw == nil {
			continue
		}
		v := peek.Parse(raw)
		if nested {
			v = v.Path(rest)
		}
		if text := value(v); text != "" {
			return newKey(s, text), true
		}
	}
	return Key{}, false
}

// EventKeys returns the keys in an event of a platform, best first: the project's own, those in the
// body, those in headers.
func (s *Set) EventKeys(project, name string, header func(string) string, body []byte, e Event) []Key {
	var out []Key
	for _, src := range s.of(project) {
		if src.Header != "" {
			if v := idOf(header(src.Header)); v != "" {
				out = append(out, newKey(src, v))
			}
		} else if v := value(peek.Parse(body).Path(src.Path)); v != "" {
			out = append(out, newKey(src, v))
		}
	}
	out = append(out, e.Keys...)
	for _, p := range Profiles() {
		for _, src := range p.Sources {
			if v := ""; p.Name == name && src.Header != "" {
				if v = idOf(header(src.Header)); v != "" && !src.ignores(v) {
					out = append(out, newKey(src, v))
				}
			}
		}
	}
	return out
}

// WordsKey returns the weak key of a request that identifies no call: the hash of its system
// messages and its first user message. It works only while the client sends its list from the
// beginning, and two calls that begin with the same words share it.
func WordsKey(texts []string) Key {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return Key{Text: "words:sha256-" + hex.EncodeToString(h.Sum(nil)[:16]), Weak: true}
}

// List returns all profiles of a project, its own first.
func (s *Set) List(project string) []Profile {
	var out []Profile
	for _, src := range s.of(project) {
		out = append(out, Profile{Name: src.Name, Sources: []Source{src}})
	}
	return append(out, Profiles()...)
}
