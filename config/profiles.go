package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits of HEARDLOG_PROFILES.
const (
	maxProfiles    = 64
	maxProfileName = 32
	maxProfilePath = 200
)

// parseProfiles reads a JSON array of profiles.
func parseProfiles(v string) ([]Profile, error) {
	dec := json.NewDecoder(strings.NewReader(v))
	dec.DisallowUnknownFields()
	var list []Profile
	if err := dec.Decode(&list); err != nil {
		// Profiles hold no secrets.
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return nil, fmt.Errorf("must be a JSON array of profiles: unknown field %s; known are project, name, header and path", field)
		}
		return nil, fmt.Errorf("must be a JSON array of profiles: %w", withoutValues(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one JSON value")
	}
	if len(list) > maxProfiles {
		return nil, fmt.Errorf("has %d profiles; at most %d are allowed", len(list), maxProfiles)
	}
	for i, p := range list {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("profile %d: %w", i, err)
		}
	}
	return list, nil
}

func (p Profile) check() error {
	switch {
	case p.Project != "" && !ValidProject(p.Project):
		return fmt.Errorf("project must be a project name, not %q", p.Project)
	case p.Name == "" || len(p.Name) > maxProfileName || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return fmt.Errorf("name must have 1 to %d of a-z, 0-9, dash and underscore, not %q", maxProfileName, p.Name)
	case (p.Header == "") == (p.Path == ""):
		return fmt.Errorf("%s: exactly one of header and path is required", p.Name)
	case len(p.Header) > maxProfilePath || strings.Trim(p.Header, letters+"-_") != "":
		return fmt.Errorf("%s: header must consist of letters, digits, dash and underscore, not %q", p.Name, p.Header)
	case len(p.Path) > maxProfilePath || strings.Trim(p.Path, letters+"-_.") != "":
		return fmt.Errorf("%s: path must be names separated by dots, such as metadata.call, not %q", p.Name, p.Path)
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
