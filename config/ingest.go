package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/heardlog/heardlog/internal/secret"
)

// IngestSecret signs the notifications that Agora sends for a project.
type IngestSecret struct {
	Project string
	Secret  secret.String
}

// Bounds of the secrets of ingest. Each secret of a project is a pass over the body of whoever calls.
const (
	maxIngestSecrets    = 10_000
	maxIngestPerProject = 4
	maxIngestSecret     = 256
	maxIngestFile       = 4 << 20
)

// ingestReadable refuses secrets for projects that nobody may come in for: what is filed there could never be read, and a slip of the pen would show
// only when somebody looks for it.
func (c *Config) ingestReadable() []error {
	if len(c.Credentials) == 0 {
		return nil
	}
	known := map[string]bool{c.DefaultProject: true}
	for _, k := range c.Credentials {
		known[k.Project] = true
	}
	for i, s := range c.Ingest {
		if !known[s.Project] { // not shown: it may be a secret in the wrong place
			return []error{fmt.Errorf("HEARDLOG_INGEST_SECRETS: the project of entry %d has no credentials in HEARDLOG_CREDENTIALS, so that nobody could read what is filed there", i+1)}
		}
	}
	return nil
}

// setIngest reads the secrets of ingest. No error shows an entry: it may be a secret in the wrong place.
func setIngest(c *Config, v string) error {
	if v == "" {
		return nil
	}
	entries := strings.Split(v, ",")
	if !strings.Contains(v, "=") { // a file
		f, err := os.Open(v)
		if err != nil {
			return errors.New("is neither project=secret nor the path of a file that can be read")
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxIngestFile+1))
		if err != nil {
			return errors.New("the file cannot be read")
		}
		if len(b) > maxIngestFile {
			return fmt.Errorf("the file is larger than %d bytes", maxIngestFile)
		}
		entries = strings.Split(string(b), "\n")
	}
	count := map[string]int{}
	for i, e := range entries {
		e = strings.TrimSpace(e)
		if e == "" || strings.HasPrefix(e, "#") {
			continue
		}
		project, value, _ := strings.Cut(e, "=")
		switch {
		case value == "":
			return fmt.Errorf("entry %d is not project=secret", i+1)
		case !ValidProject(project):
			return fmt.Errorf("entry %d: the project may hold letters, digits, dot, dash and underscore, at most 128", i+1)
		case len(value) > maxIngestSecret || oneLine(value) != nil:
			return fmt.Errorf("entry %d: a secret has at most %d bytes and no control characters", i+1, maxIngestSecret)
		case count[project] == maxIngestPerProject:
			return fmt.Errorf("entry %d: its project has %d secrets already", i+1, maxIngestPerProject)
		case len(c.Ingest) == maxIngestSecrets:
			return fmt.Errorf("there are more than %d entries", maxIngestSecrets)
		}
		count[project]++
		c.Ingest = append(c.Ingest, IngestSecret{Project: project, Secret: secret.String(value)})
	}
	if len(c.Ingest) == 0 {
		return errors.New("holds no entry; leave it unset to take no notifications")
	}
	return nil
}
