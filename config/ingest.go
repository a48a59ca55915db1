package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/secret"
)

// IngestSecret signs the notifications that Agora sends for a project, or the webhooks of another
// platform.
type IngestSecret struct {
	Project  string
	Platform string // "" = Agora
	Secret   secret.String
}

// ingestPlatforms are the platforms that sign their webhooks, beside Agora.
var ingestPlatforms = []string{"elevenlabs", "retell", "twilio", "vapi"}

// Limits of the secrets of notifications. A notification is checked against each secret of its
// project.
const (
	maxIngestSecrets    = 10_000
	maxIngestPerProject = 4
	maxIngestSecret     = 256 // bytes
)

// checkIngest refuses a project without credentials, since its notifications could never be read.
func (c *Config) checkIngest(m mistakes) {
	if len(c.Credentials)+len(c.Certificates) == 0 {
		return
	}
	known := map[string]bool{c.DefaultProject: true}
	for _, k := range c.Credentials {
		known[k.Project] = true
	}
	for _, k := range c.Certificates {
		known[k.Project] = true
	}
	for i, s := range c.Ingest {
		if !known[s.Project] { // not shown: it may be a secret in the wrong place
			m.set("HEARDLOG_INGEST_SECRETS", "the project of entry %d must have credentials in HEARDLOG_CREDENTIALS; without them its data could not be read", i+1)
		}
	}
}

// parseIngest reads project=secret and project/platform=secret entries. No error shows an entry,
// since it may be a secret in the wrong place.
func parseIngest(v string) ([]IngestSecret, error) {
	entries, err := readEntries(v, "project=secret")
	if err != nil {
		return nil, err
	}
	var out []IngestSecret
	count := map[string]int{}
	for _, e := range entries {
		owner, value, _ := strings.Cut(e.text, "=")
		project, platform, named := strings.Cut(owner, "/")
		switch {
		case value == "":
			return nil, fmt.Errorf("entry %d must be project=secret or project/platform=secret", e.number)
		case !ValidProject(project):
			return nil, fmt.Errorf("entry %d: the project must have 1 to 128 letters, digits, dots, dashes and underscores", e.number)
		case named && !slices.Contains(ingestPlatforms, platform):
			return nil, fmt.Errorf("entry %d: the platform behind the project must be one of %s", e.number, strings.Join(ingestPlatforms, ", "))
		case len(value) > maxIngestSecret || oneLine(value) != nil:
			return nil, fmt.Errorf("entry %d: the secret must have at most %d bytes and no control characters", e.number, maxIngestSecret)
		case count[owner] == maxIngestPerProject:
			return nil, fmt.Errorf("entry %d: its project has %d secrets already", e.number, maxIngestPerProject)
		case len(out) == maxIngestSecrets:
			return nil, fmt.Errorf("must have at most %d entries", maxIngestSecrets)
		}
		count[owner]++
		out = append(out, IngestSecret{Project: project, Platform: platform, Secret: secret.String(value)})
	}
	if len(out) == 0 {
		return nil, errors.New("has no entry; leave it unset to accept no notifications")
	}
	return out, nil
}
