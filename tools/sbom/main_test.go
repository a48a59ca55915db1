package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun describes the test's own program.
func TestRun(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	licenses := filepath.Join(t.TempDir(), "licenses")
	if err := run([]string{self}, licenses, &out); err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal([]byte(out.String()), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Metadata.Component.Name != "github.com/heardlog/heardlog/tools" || len(b.Components) == 0 || b.Components[0].Name != "std" {
		t.Errorf("got %s", &out)
	}
	if len(b.Dependencies) != 1 || len(b.Dependencies[0].DependsOn) != len(b.Components) {
		t.Errorf("dependencies %+v", b.Dependencies)
	}
	text, err := os.ReadFile(licenses)
	if err != nil || !strings.Contains(string(text), "The Go Authors") {
		t.Errorf("licences %v: %.200s", err, text)
	}
	if err := run(nil, "", &out); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("without a program: %v", err)
	}
}

// TestDescribePackage describes a package that needs another one.
func TestDescribePackage(t *testing.T) {
	t.Parallel()
	b := describePackage("pkg:pypi/heardlog@1.2.3", []string{"httpx<1,>=0.27"})
	if c := b.Metadata.Component; c.Name != "heardlog" || c.Version != "1.2.3" {
		t.Errorf("the package is %+v", c)
	}
	if len(b.Components) != 1 || b.Components[0].PURL != "pkg:pypi/httpx" || b.Components[0].Properties[0].Value != "<1,>=0.27" || b.Dependencies[0].DependsOn[0] != b.Components[0].Ref {
		t.Errorf("it needs %+v, %+v", b.Components, b.Dependencies)
	}
}
