package compat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// nodeRun runs node to its end, with the server's binary in HEARDLOG_BIN. Arguments with a slash
// are paths in this folder.
func nodeRun(t *testing.T, args ...string) *process {
	t.Helper()
	for i, arg := range args {
		if strings.Contains(arg, "/") && !filepath.IsAbs(arg) {
			path, err := filepath.Abs(arg)
			if err != nil {
				t.Fatal(err)
			}
			args[i] = path
		}
	}
	p := run(t, needNode(t, "clients-node"), args, "HEARDLOG_BIN="+program(t, "api"))
	if code := p.wait(t); code != 0 {
		t.Fatalf("node %s ended with %d:\n%s\n%s", args, code, p.stdout, p.stderr)
	}
	return p
}

// TestJavaScriptPackage runs the tests of sdk/js against the server: its own, and those with the AI
// SDK, OpenAI's Agents SDK and LiveKit Agents.
func TestJavaScriptPackage(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"../sdk/js/test/*.test.js", "clients-node/sdk/*.test.mjs"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				if p := nodeRun(t, "--test", file); !strings.Contains(p.stdout.String(), "# fail 0") {
					t.Errorf("the tests wrote\n%s", p.stdout)
				}
			})
		}
	}
}

// TestJavaScriptTypes checks a program that uses the whole package with the TypeScript compiler.
func TestJavaScriptTypes(t *testing.T) {
	t.Parallel()
	nodeRun(t, "clients-node/node_modules/typescript/bin/tsc", "-p", "clients-node/sdk/tsconfig.json")
}

// TestLiveKitCalls plays a few calls of real sessions with interruptions. How right the record is
// needs more calls: the guide says how to measure it.
func TestLiveKitCalls(t *testing.T) {
	t.Parallel()
	p := nodeRun(t, "clients-node/calls/run.mjs", "--api", program(t, "api"), "--calls", "4", "--turns", "2", "--at-once", "4", "--series", "words", "--events", "on")
	for _, want := range []string{`"calls":4`, `"script faults":0`, `"events refused":0`} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("there is no %s in\n%s\n%s", want, p.stdout, p.stderr)
		}
	}
}

// TestPackageGuides runs the programs of the guides that name their file and show what they write.
func TestPackageGuides(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Abs("clients-node/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"javascript", "go"} {
		raw, err := os.ReadFile("../docs/guides/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		programs := regexp.MustCompile("(?s)```(?:js|go)\n(// ([a-z]+\\.[a-z]+)\n.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(string(raw), -1)
		if len(programs) == 0 {
			t.Errorf("%s.md shows no program", page)
		}
		for _, m := range programs {
			t.Run(m[2], func(t *testing.T) {
				t.Parallel()
				llm := fakeLLM(t) + "/v1"
				s := start(t, "HEARDLOG_LLM_URL="+llm)
				dir := t.TempDir()
				command, args := "go", []string{"run"}
				if strings.HasSuffix(m[2], ".mjs") {
					command, args = needNode(t, "clients-node"), nil
					if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
						t.Fatal(err)
					}
				} else if dir, err = os.MkdirTemp("..", "_guide-"); err != nil { // in the module, and in no pattern
					t.Fatal(err)
				} else {
					t.Cleanup(func() { _ = os.RemoveAll(dir) })
				}
				if dir, err = filepath.Abs(dir); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(dir, m[2])
				if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(within(t, patience), command, append(args, file)...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "HEARDLOG_URL="+s.url+"/v1", "LLM_URL="+llm)
				out, err := cmd.CombinedOutput()
				if err != nil || string(out) != m[3] {
					t.Errorf("%v; it wrote\n%s\nthe page has\n%s", err, out, m[3])
				}
			})
		}
	}
}

// TestJavaScriptTarball imports every part of the package from the tarball that npm makes of it.
func TestJavaScriptTarball(t *testing.T) {
	t.Parallel()
	node, npm := need(t, "node", "install node and npm"), need(t, "npm", "install node and npm")
	dir := t.TempDir()
	script := `set -e
cd "$1" && tarball=$("$2" pack --silent --pack-destination "$3")
cd "$3" && mkdir -p node_modules/heardlog && tar -xzf "$tarball" -C node_modules/heardlog --strip-components=1
cat > all.mjs <<'END'
import { createRequire } from "node:module";
import { existsSync } from "node:fs";
const root = new URL("./node_modules/heardlog/", import.meta.url);
const { exports } = createRequire(import.meta.url)("./node_modules/heardlog/package.json");
for (const [name, { types }] of Object.entries(exports)) {
  if (!existsSync(new URL(types, root))) throw new Error(types);
  console.log(name, Object.keys(await import("heardlog" + name.slice(1))).length > 0);
}
END
"$4" all.mjs`
	cmd := exec.CommandContext(within(t, patience), "sh", "-c", script, "sh", "../sdk/js", npm, dir, node)
	out, err := cmd.CombinedOutput()
	if want := ". true\n./webhooks true\n./livekit true\n./ai-sdk true\n./openai-agents true\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}
