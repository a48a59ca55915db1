package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/go-playground/validator/v10"

	"github.com/heardlog/heardlog/memory/window"
)

// Load reads the settings. The error lists every mistake, one a line, each after the name of its
// variable. The fields of settings with mistakes are zero.
func Load(getenv func(string) string) (Config, error) {
	var c Config
	settings := Settings()
	values := map[string]string{}
	for _, s := range settings {
		if v := getenv(s.Name); v != "" {
			values[s.Name] = v
		} else if s.Default != "" {
			values[s.Name] = s.Default
		}
	}
	m := mistakes{}
	m.add(settings, values, env.ParseWithOptions(&c, env.Options{Environment: values, FuncMap: parsers()}))
	m.add(settings, values, newValidator().Struct(c))
	for _, s := range settings {
		if m[s.Name] != nil {
			reflect.ValueOf(&c).Elem().FieldByIndex(s.index).SetZero()
		}
	}
	c.derive()
	c.checkTogether(m)
	var errs []error
	for _, s := range settings {
		if err := m[s.Name]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	return c, errors.Join(errs...)
}

// Unknown returns the names in environ (as of os.Environ) that begin with HEARDLOG_ and are no
// settings. Most are misspelt.
func Unknown(environ []string) []string {
	known := map[string]bool{}
	for _, s := range Settings() {
		known[s.Name] = true
	}
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "HEARDLOG_") && !known[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// parsers returns the parsers of settings that are not plain texts or numbers. A type is read by
// one parser wherever it is a setting.
func parsers() map[reflect.Type]env.ParserFunc {
	out := map[reflect.Type]env.ParserFunc{}
	parse(out, parseDuration)
	parse(out, func(v string) (bool, error) { return strconv.ParseBool(strings.ToLower(v)) })
	parse(out, parseCredentials)
	parse(out, parseFallbacks)
	parse(out, parsePassThrough)
	parse(out, parseProfiles)
	parse(out, parseIngest)
	parse(out, parseAllow)
	parse(out, parseAttributes)
	parse(out, func(v string) (window.Policy, error) { return window.ParseSetting("", v) })
	return out
}

func parse[T any](parsers map[reflect.Type]env.ParserFunc, parser func(string) (T, error)) {
	parsers[reflect.TypeFor[T]()] = func(v string) (any, error) { return parser(v) }
}

// parseDuration is time.ParseDuration, and reads whole days such as 14d as well.
func parseDuration(v string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 100*366 {
			return 0, errors.New("not a number of days")
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(v)
}

// mistakes holds the first mistake of each setting, by its name.
type mistakes map[string]error

// add adds the mistakes that env or validator found.
func (m mistakes) add(settings []Setting, values map[string]string, err error) {
	if all, ok := errors.AsType[env.AggregateError](err); ok {
		for _, e := range all.Errors {
			p, _ := errors.AsType[env.ParseError](e)
			i := slices.IndexFunc(settings, func(s Setting) bool { return s.field.Name == p.Name })
			m[settings[i].Name] = settings[i].parseError(values[settings[i].Name], p.Err)
		}
	}
	if all, ok := errors.AsType[validator.ValidationErrors](err); ok {
		for _, e := range all {
			i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == e.Field() })
			if s := settings[i]; m[s.Name] == nil {
				m[s.Name] = s.ruleError(values[s.Name], e)
			}
		}
	}
}

// set adds a mistake of a setting that has none yet.
func (m mistakes) set(name, format string, args ...any) {
	if m[name] == nil {
		m[name] = fmt.Errorf(format, args...)
	}
}

// derive sets the fields that follow from others.
func (c *Config) derive() {
	c.Loopback = isLoopback(c.Addr)
	if path, ok := strings.CutPrefix(c.StoreURL.Reveal(), sqliteScheme); ok {
		c.StorePath, c.StoreURL = path, ""
	}
	c.SecretKey = decodeKey(c.SecretKey)
	c.Tracing.derive()
	if c.DefaultProject == "" {
		c.DefaultProject = "default"
		if len(c.Credentials) > 0 {
			c.DefaultProject = c.Credentials[0].Project
		}
	}
}

// checkTogether finds mistakes that concern more than one setting.
func (c *Config) checkTogether(m mistakes) {
	if len(c.Credentials) == 0 && !c.Loopback && c.Addr != "" {
		m.set("HEARDLOG_CREDENTIALS", "is required to serve %s: without credentials the server is open, and then serves only a loopback address such as 127.0.0.1:8080", c.Addr)
	}
	c.checkIngest(m)
	if c.WebhookSecret != "" && c.WebhookURL == "" {
		m.set("HEARDLOG_WEBHOOK_SECRET", "is set without HEARDLOG_WEBHOOK_URL")
	}
	if len(c.LLM.Fallbacks) > 0 && c.LLM.URL == "" {
		m.set("HEARDLOG_LLM_FALLBACKS", "wants HEARDLOG_LLM_URL, which it stands behind")
	}
	if c.AutoJoin && c.LLM.URL == "" {
		m.set("HEARDLOG_AUTO_JOIN", "wants HEARDLOG_LLM_URL, which agents that join by themselves talk to")
	}
}

// parseAllow reads address ranges.
func parseAllow(v string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for e := range strings.SplitSeq(v, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		p, err := netip.ParsePrefix(e)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range such as 10.0.0.0/8", e)
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%q has bits set behind its prefix; write %s", e, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}
