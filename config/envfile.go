package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// EnvFile is the variable that names a file of settings, for ReadEnvFile.
const EnvFile = "HEARDLOG_ENV_FILE"

// maxEnvFile is the largest size of such a file, in bytes.
const maxEnvFile = 1 << 20

// Var is a variable of a file of settings.
type Var struct{ Name, Value string }

var (
	varName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

	// runtimeVars are read by Go's runtime before main starts.
	runtimeVars = []string{"GOMEMLIMIT", "GOGC", "GODEBUG", "GOMAXPROCS", "GOTRACEBACK"}
)

// ReadEnvFile reads a file of environment variables, as systemd, Docker and Compose take it: one
// NAME=value a line. Empty lines and those that begin with # or ; are left out, and export may
// stand before a name. A value may be in single quotes, where nothing has a meaning of its own, or
// in double ones, where a backslash stands before " \ $ and `. Nothing is run or replaced.
//
// The error lists every mistake with its line and shows no value. What those programs read in
// different ways is a mistake, and so is a name that begins with HEARDLOG_ and is not a setting.
func ReadEnvFile(path string) ([]Var, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxEnvFile {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	var vars []Var
	var mistakes []error
	lineOf := map[string]int{}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(b), "\ufeff")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		v, err := parseVar(line)
		if err == nil && lineOf[v.Name] > 0 {
			err = fmt.Errorf("%s is set on line %d too", v.Name, lineOf[v.Name])
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s, line %d: %w", path, number, err))
			continue
		}
		lineOf[v.Name] = number
		vars = append(vars, v)
	}
	return vars, errors.Join(mistakes...)
}

// parseVar reads a line.
func parseVar(line string) (Var, error) {
	if rest, ok := strings.CutPrefix(line, "export "); ok {
		line = strings.TrimSpace(rest)
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return Var{}, errors.New("must be NAME=value")
	case !varName.MatchString(name):
		return Var{}, errors.New("the name before = must be letters, digits and _, without spaces")
	case name == EnvFile:
		return Var{}, errors.New("a file of settings cannot name another")
	case slices.Contains(runtimeVars, name):
		return Var{}, fmt.Errorf("%s is read before this file; set it in the environment", name)
	}
	for _, advice := range Unknown([]string{line}) {
		return Var{}, fmt.Errorf("%s is not a setting; %s", name, advice)
	}
	value, err := parseValue(value)
	if err != nil {
		return Var{}, fmt.Errorf("%s: %w", name, err)
	}
	if strings.ContainsRune(value, 0) {
		return Var{}, fmt.Errorf("%s: must not have a zero byte", name)
	}
	return Var{name, value}, nil
}

var errShell = errors.New("no shell reads this file: write the value itself, or put it in single quotes")

// parseValue reads what stands behind =, with or without quotes.
func parseValue(v string) (string, error) {
	v = strings.TrimSpace(v)
	if v == "" {
		return "", nil
	}
	var out strings.Builder
	switch v[0] {
	case '\'':
		text, rest, ok := strings.Cut(v[1:], "'")
		if !ok {
			return "", errors.New("the quote is not closed on this line")
		}
		return text, checkRest(rest)
	case '"':
		for i := 1; i < len(v); i++ {
			switch c := v[i]; {
			case c == '"':
				return out.String(), checkRest(v[i+1:])
			case c == '\\' && i+1 < len(v) && strings.IndexByte("\"\\$`", v[i+1]) >= 0:
				i++
				out.WriteByte(v[i])
			case c == '`', c == '$' && i+1 < len(v) && (v[i+1] == '(' || v[i+1] == '{'):
				return "", errShell
			default:
				out.WriteByte(c)
			}
		}
		return "", errors.New("the quote is not closed on this line")
	}
	switch {
	case strings.Contains(v, "`"), strings.Contains(v, "$("), strings.Contains(v, "${"):
		return "", errShell
	case strings.Contains(v, " #"), strings.Contains(v, "\t#"):
		return "", errors.New("put a value with a space before # in quotes, and a comment on a line of its own")
	case strings.HasSuffix(v, `\`):
		return "", errors.New(`must not end with \: a value is on one line`)
	}
	return v, nil
}

// checkRest returns an error unless what follows a closing quote is a comment.
func checkRest(rest string) error {
	after := strings.TrimSpace(rest)
	if after == "" || after[0] == '#' && after != rest {
		return nil
	}
	return errors.New("something follows the closing quote; put the whole value in one pair of quotes")
}
