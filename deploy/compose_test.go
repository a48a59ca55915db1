package deploy_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/heardlog/heardlog/config"
)

// service is what these tests look at of a service of docker-compose.yml.
type service struct {
	Image, Build string
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

// readCompose reads a file of Compose.
func readCompose(t *testing.T, path string) (services map[string]service, volumes map[string]any) {
	t.Helper()
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal([]byte(read(t, path)), &file); err != nil {
		t.Fatal(err)
	}
	return file.Services, file.Volumes
}

// TestCompose checks that both ways to start are complete: one service is reachable, from this
// machine only, and the services and files that they need exist.
func TestCompose(t *testing.T) {
	t.Parallel()
	base, volumes := readCompose(t, "../docker-compose.yml")
	scale, more := readCompose(t, "../docker-compose.scale.yml")
	if len(scale["heardlog"].Ports) != 0 {
		t.Errorf("three servers have one port: %s", scale["heardlog"].Ports)
	}
	both, all := maps.Clone(base), maps.Clone(volumes)
	maps.Copy(both, scale)
	maps.Copy(all, more)
	for name, services := range map[string]map[string]service{"one server": base, "scale": both} {
		serves := 0
		for service, s := range services {
			if s.Image == "" && base[service].Image == "" {
				t.Errorf("%s: %s has no image", name, service)
			}
			for _, port := range s.Ports {
				if !strings.HasPrefix(port, "127.0.0.1:") {
					t.Errorf("%s: %s can be reached from elsewhere: %s", name, service, port)
				}
				if strings.HasPrefix(port, "127.0.0.1:8080:") {
					serves++
				}
			}
			for _, other := range s.needs() {
				if _, ok := services[other]; !ok {
					t.Errorf("%s: %s waits for %s, which does not exist", name, service, other)
				}
			}
			for _, v := range s.Volumes {
				from, _, _ := strings.Cut(v, ":")
				if strings.HasPrefix(from, "./") {
					if _, err := os.Stat(filepath.Join("..", from)); err != nil {
						t.Errorf("%s: %v", service, err)
					}
				} else if _, ok := all[from]; !ok {
					t.Errorf("%s: %s mounts %s, which is not a volume", name, service, from)
				}
			}
		}
		if serves != 1 {
			t.Errorf("%s: %d services serve port 8080", name, serves)
		}
	}
}

// TestComposeSettings checks that each setting reaches the server, and that everything that the
// file sets is a setting. The first key is made in the same store.
func TestComposeSettings(t *testing.T) {
	t.Parallel()
	services, _ := readCompose(t, "../docker-compose.yml")
	server, first := services["heardlog"], services["first-key"]
	for _, s := range config.Settings() {
		own := s.Name == "HEARDLOG_ADDR" || s.Name == config.EnvFile // of the image; a path in the container
		if _, ok := server.Environment[s.Name]; ok == own {
			t.Errorf("%s is passed on: %t", s.Name, ok)
		}
	}
	for setting := range server.Environment {
		for unknown, advice := range config.Unknown([]string{setting + "="}) {
			t.Errorf("%s is not a setting: %s", unknown, advice)
		}
	}
	if diff := cmp.Diff(server.Environment, first.Environment); diff != "" || !slices.Equal(server.Volumes, first.Volumes) {
		t.Errorf("first-key has another environment than the server:\n%s", diff)
	}
	// What Compose makes of an unset variable must be what the server takes for unset.
	if _, err := config.Load(func(name string) string {
		value := server.Environment[name]
		if strings.Contains(value, ":+") || value == "" {
			return ""
		}
		_, value, _ = strings.Cut(strings.TrimSuffix(value, "}"), ":-")
		return value
	}); err != nil {
		t.Errorf("a first start: %v", err)
	}
	if want := []string{"keys", "create", "--if-none"}; !slices.Equal(first.Command[:3], want) {
		t.Errorf("first-key runs %q", first.Command)
	}
}
