package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/heardlog/heardlog/internal/secret"
)

const (
	maxCredentials = 10_000
	maxFile        = 4 << 20 // bytes of a file with entries
)

// parseCredentials reads project=id:secret entries. No error shows an entry, since it may be a
// secret in the wrong place.
func parseCredentials(v string) ([]Credential, error) {
	entries, err := readEntries(v, "project=id:secret")
	if err != nil {
		return nil, err
	}
	var out []Credential
	seen, holders := map[string]bool{}, map[string]string{}
	for _, e := range entries {
		project, rest, ok1 := strings.Cut(e.text, "=")
		id, value, ok2 := strings.Cut(rest, ":")
		switch {
		case !ok1 || !ok2 || id == "" || value == "":
			return nil, fmt.Errorf("entry %d must be project=id:secret", e.number)
		case !ValidProject(project):
			return nil, fmt.Errorf("entry %d: the project must have 1 to 128 letters, digits, dots, dashes and underscores", e.number)
		case len(id) > 256 || len(value) > 1024:
			return nil, fmt.Errorf("entry %d: the id must have at most 256 characters, the secret at most 1024", e.number)
		case seen[id]:
			return nil, fmt.Errorf("entry %d: its id is used in an earlier entry", e.number)
		case holders[value] != "" && holders[value] != project:
			// Sent alone, as a bearer token, the secret would not identify the project.
			return nil, fmt.Errorf("entry %d: its secret is used by another project", e.number)
		case len(out) == maxCredentials:
			return nil, fmt.Errorf("must have at most %d entries", maxCredentials)
		}
		seen[id], holders[value] = true, project
		out = append(out, Credential{Project: project, ID: id, Secret: secret.String(value)})
	}
	if len(out) == 0 {
		return nil, errors.New("has no entry; leave it unset for an open server on a loopback address")
	}
	return out, nil
}

// maxCertificates is how many certificates an app may have: Agora's primary and secondary one.
const maxCertificates = 2

// parseCertificates reads appid=certificate entries. No error shows an entry.
func parseCertificates(v string) ([]Certificate, error) {
	entries, err := readEntries(v, "appid=certificate")
	if err != nil {
		return nil, err
	}
	var out []Certificate
	count := map[string]int{}
	for _, e := range entries {
		project, value, _ := strings.Cut(e.text, "=")
		_, err := hex.DecodeString(value)
		switch {
		case !ValidProject(project):
			return nil, fmt.Errorf("entry %d must be appid=certificate; an app ID has letters and digits", e.number)
		case err != nil || len(value) != 32:
			return nil, fmt.Errorf("entry %d: the certificate must have 32 hexadecimal digits", e.number)
		case count[project] == maxCertificates:
			return nil, fmt.Errorf("entry %d: its app has %d certificates already", e.number, maxCertificates)
		case len(out) == maxCredentials:
			return nil, fmt.Errorf("must have at most %d entries", maxCredentials)
		}
		count[project]++
		out = append(out, Certificate{Project: project, Key: secret.String(value)})
	}
	if len(out) == 0 {
		return nil, errors.New("has no entry; leave it unset to accept no tokens of Agora")
	}
	return out, nil
}

// entry is one entry of a list in a setting or a file, and its number from 1.
type entry struct {
	text   string
	number int
}

// readEntries splits a list at its commas or, if it holds no "=", reads a file with an entry a
// line. It drops empty entries and those that begin with #.
func readEntries(v, form string) ([]entry, error) {
	texts := strings.Split(v, ",")
	if !strings.Contains(v, "=") {
		b, err := readFile(v, "is neither "+form+" nor the path of a file that can be read", maxFile)
		if err != nil {
			return nil, err
		}
		texts = strings.Split(string(b), "\n")
	}
	var out []entry
	for i, t := range texts {
		if t = strings.TrimSpace(t); t != "" && !strings.HasPrefix(t, "#") {
			out = append(out, entry{t, i + 1})
		}
	}
	return out, nil
}

// readFile reads a file of at most limit bytes. It returns noFile as the error if the file cannot
// be opened: the path itself may be a secret in the wrong place.
func readFile(path, noFile string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.New(noFile)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, errors.New("the file cannot be read")
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return b, nil
}
