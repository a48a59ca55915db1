package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/config"
)

func envFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "heardlog.env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadEnvFile(t *testing.T) {
	t.Parallel()
	got, err := config.ReadEnvFile(envFile(t, "\ufeff# a comment\n; another\n\n"+
		"HEARDLOG_ADDR=127.0.0.1:9000\r\n"+
		"  export HEARDLOG_UI=off  \n"+
		"HEARDLOG_CREDENTIALS='shop=id:a b#c$d\\e' # the shop\n"+
		`HEARDLOG_LLM_API_KEY="a \"b\" \\ \$c \n #d"`+"\n"+
		"HEARDLOG_LLM_MODEL=a#b$c d\n"+
		"HEARDLOG_LLM_VENDOR=\n"+
		"AWS_REGION=eu-central-1"))
	want := []config.Var{
		{"HEARDLOG_ADDR", "127.0.0.1:9000"},
		{"HEARDLOG_UI", "off"},
		{"HEARDLOG_CREDENTIALS", `shop=id:a b#c$d\e`},
		{"HEARDLOG_LLM_API_KEY", `a "b" \ $c \n #d`},
		{"HEARDLOG_LLM_MODEL", "a#b$c d"},
		{"HEARDLOG_LLM_VENDOR", ""},
		{"AWS_REGION", "eu-central-1"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

func TestReadEnvFileMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want string }{
		{"hunter2", "must be NAME=value"},
		{"HEARDLOG_ADDR = hunter2", "without spaces"},
		{"=hunter2", "the name before ="},
		{"9x=hunter2", "the name before ="},
		{"HEARDLOG_CREDENTALS=hunter2", "did you mean HEARDLOG_CREDENTIALS?"},
		{"HEARDLOG_ZZZZZZZZZZ=hunter2", "is not a setting"},
		{"HEARDLOG_ENV_FILE=hunter2", "cannot name another"},
		{"GOMEMLIMIT=hunter2", "set it in the environment"},
		{"HEARDLOG_UI='hunter2", "not closed"},
		{`HEARDLOG_UI="hunter2`, "not closed"},
		{`HEARDLOG_UI="hunter2\"`, "not closed"},
		{`HEARDLOG_UI="a"hunter2`, "follows the closing quote"},
		{`HEARDLOG_UI="a"#hunter2`, "follows the closing quote"},
		{`HEARDLOG_SECRET_KEY="$(cat /hunter2)"`, "no shell"},
		{"HEARDLOG_SECRET_KEY=${hunter2}", "no shell"},
		{"HEARDLOG_SECRET_KEY=`hunter2`", "no shell"},
		{"HEARDLOG_UI=off # hunter2", "line of its own"},
		{`HEARDLOG_UI=hunter2\`, "on one line"},
		{"HEARDLOG_UI=hunter2\x00", "zero byte"},
		{"HEARDLOG_ADDR=hunter2", "set on line 2 too"},
	} {
		path := envFile(t, "# first\nHEARDLOG_ADDR=127.0.0.1:0\n"+tt.line+"\nHEARDLOG_NOT_ONE=x\n")
		_, err := config.ReadEnvFile(path)
		if err == nil || !strings.Contains(err.Error(), path+", line 3: ") || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "line 4: ") {
			t.Errorf("%s: %v", tt.line, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a value is shown: %v", tt.line, err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"):            "no such file",
		t.TempDir():                                   "directory",
		envFile(t, strings.Repeat("# much\n", 1<<20)): "larger than 1 MiB",
	} {
		if _, err := config.ReadEnvFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
