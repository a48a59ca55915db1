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
			return nil, fmt.Errorf("is not a JSON array of profiles: field %s is not known; project, name, header and path are", field)
		}
		return nil, fmt.Errorf("is not a JSON array of profiles: %w", withoutValues(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one JSON value")
	}
	if len(list) > maxProfiles {
		return nil, fmt.Errorf("holds %d profiles; at most %d are allowed", len(list), maxProfiles)
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
		return fmt.Errorf("project %q is not a project name", p.Project)
	case p.Name == "" || len(p.Name) > maxProfileName || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return fmt.Errorf("name %q is not one to %d of a-z, 0-9, dash and underscore", p.Name, maxProfileName)
	case (p.Header == "") == (p.Path == ""):
		return fmt.Errorf("%s: exactly one of header and path is wanted", p.Name)
	case len(p.Header) > maxProfilePath || strings.Trim(p.Header, letters+"-_") != "":
		return fmt.Errorf("%s: header %q is not a header's name of letters, digits, dash and underscore", p.Name, p.Header)
	case len(p.Path) > maxProfilePath || strings.Trim(p.Path, letters+"-_.") != "":
		return fmt.Errorf("%s: path %q is not made of names with a dot between, such as metadata.call", p.Name, p.Path)
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
