package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/heardlog/heardlog/config"
)

// service is what these tests look at of a service of docker-compose.yml.
type service struct {
	Image, Build string
	Profiles     []string
	Ports        []string
	Command      []string
	Volumes      []string
	Environment  map[string]string
	DependsOn    any `yaml:"depends_on"`
}

// needs returns the services that one waits for, in either form of depends_on.
func (s service) needs() (out []string) {
	switch list := s.DependsOn.(type) {
	case []any:
		for _, name := range list {
			out = append(out, name.(string))
		}
	case map[string]any:
		for name := range list {
			out = append(out, name)
		}
	}
	return out
}

// TestCompose checks that each profile is complete: one of its services is reachable, the services
// and files that they need exist, and what they set are settings.
func TestCompose(t *testing.T) {
	t.Parallel()
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal([]byte(read(t, "../docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	serves := map[string][]string{}
	for name, s := range file.Services {
		if len(s.Profiles) != 1 || s.Image == "" {
			t.Errorf("%s has the profiles %q and the image %q", name, s.Profiles, s.Image)
			continue
		}
		profile := s.Profiles[0]
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s can be reached from elsewhere: %s", name, port)
			}
			if strings.HasPrefix(port, "127.0.0.1:8080:") {
				serves[profile] = append(serves[profile], name)
			}
		}
		for _, other := range s.needs() {
			if !slices.Contains(file.Services[other].Profiles, profile) {
				t.Errorf("%s waits for %s, which is not in profile %s", name, other, profile)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, "./") {
				if _, err := os.Stat(filepath.Join("..", from)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, ok := file.Volumes[from]; !ok {
				t.Errorf("%s mounts %s, which is no volume", name, from)
			}
		}
		for setting := range s.Environment {
			if strings.HasPrefix(setting, "HEARDLOG_") && len(config.Unknown([]string{setting + "="})) > 0 {
				t.Errorf("%s sets %s, which is no setting", name, setting)
			}
		}
	}
	for _, profile := range []string{"default", "scale"} {
		if len(serves[profile]) != 1 {
			t.Errorf("in profile %s serve %q", profile, serves[profile])
		}
	}
}
