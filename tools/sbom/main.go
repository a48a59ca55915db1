// Command sbom describes what a built Go program is made of, from the build information in it, or
// what a package of another language needs.
//
//	sbom -licenses THIRD_PARTY_LICENSES PROGRAM
//	sbom -package pkg:pypi/heardlog@1.2.3 'httpx<1,>=0.27'
//
// It writes a software bill of materials (CycloneDX 1.6, JSON) to the standard output. With
// -licenses it also writes the licence texts of all modules, which it reads from the module cache.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	licenses := flag.String("licenses", "", "file for the licence texts")
	name := flag.String("package", "", "package URL of a package; the arguments are what it needs")
	flag.Parse()
	err := error(nil)
	if *name != "" {
		err = encode(os.Stdout, describePackage(*name, flag.Args()))
	} else {
		err = run(flag.Args(), *licenses, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, licenses string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: sbom [-licenses FILE] PROGRAM")
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	if err := encode(out, describe(info)); err != nil || licenses == "" {
		return err
	}
	f, err := os.Create(licenses)
	if err != nil {
		return err
	}
	return errors.Join(writeLicenses(f, info.Deps), f.Close())
}

func encode(out io.Writer, b bom) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(b)
}

// bom is a CycloneDX document.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// describe lists the modules in a program. Build information does not say which module needs which,
// so the program needs them all.
func describe(info *debug.BuildInfo) bom {
	main := describeModule("application", &info.Main)
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED", "vcs.revision", "vcs.time", "vcs.modified":
			main.Properties = append(main.Properties, property{"go:build:" + s.Key, s.Value})
		}
	}
	std := component{Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	std.Ref = std.PURL
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{main}, Components: []component{std}}
	needs := dependency{Ref: main.Ref, DependsOn: []string{std.Ref}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := describeModule("library", m)
		b.Components = append(b.Components, c)
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{needs}
	return b
}

// describePackage describes a package by its URL and by what it needs, as names with versions that
// are allowed. Which version is installed is not known before it is.
func describePackage(purl string, needs []string) bom {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(purl, "pkg:"), "/")
	name, version, _ := strings.Cut(rest, "@")
	main := component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl}
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{main}, Components: []component{}}
	on := dependency{Ref: purl, DependsOn: []string{}}
	for _, need := range needs {
		name := regexp.MustCompile(`^[\w.-]+`).FindString(need)
		c := component{Type: "library", Name: name, PURL: "pkg:" + kind + "/" + name}
		c.Ref = c.PURL
		if allowed := strings.TrimSpace(strings.TrimPrefix(need, name)); allowed != "" {
			c.Properties = []property{{kind + ":allowed", allowed}}
		}
		b.Components = append(b.Components, c)
		on.DependsOn = append(on.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{on}
	return b
}

func describeModule(kind string, m *debug.Module) component {
	c := component{Type: kind, Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
	c.Ref = c.PURL
	if m.Sum != "" {
		c.Properties = append(c.Properties, property{"go:sum", m.Sum}) // as in go.sum
	}
	return c
}

// legal matches the names of files that a module asks to be passed on.
var legal = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice)`)

// writeLicenses writes the legal texts of Go and of each module. A module without any is an error.
func writeLicenses(w io.Writer, modules []*debug.Module) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	var versions []string
	for _, m := range modules {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" { // else it is a folder of the program's own repository
			versions = append(versions, m.Path+"@"+m.Version)
		}
	}
	var list []byte
	if len(versions) > 0 {
		args := append([]string{"list", "-m", "-f", "{{.Path}}@{{.Version}}\t{{.Dir}}"}, versions...)
		if list, err = exec.Command("go", args...).Output(); err != nil {
			return fmt.Errorf("go list -m: %w", err)
		}
	}
	for line := range strings.Lines("Go\t" + string(root) + string(list)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		entries, err := os.ReadDir(cmp.Or(dir, "not in the module cache"))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.IsDir() || !legal.MatchString(e.Name()) })
		if len(entries) == 0 {
			return fmt.Errorf("%s has no licence in %s", name, dir)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s\n%s, %s\n\n%s\n\n", strings.Repeat("=", 80), name, e.Name(), strings.TrimSpace(string(text))); err != nil {
				return err
			}
		}
	}
	return nil
}
