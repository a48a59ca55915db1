package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/go-playground/validator/v10"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/remember"
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

// Unknown returns the names in environ (as of os.Environ) that begin with HEARDLOG_ and are not
// settings, in order, each with what to do about it: most are misspelt.
func Unknown(environ []string) iter.Seq2[string, string] {
	var known []string
	for _, s := range Settings() {
		known = append(known, s.Name)
	}
	advice := map[string]string{}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "HEARDLOG_") || slices.Contains(known, name) {
			continue
		}
		advice[name] = "heardlog help settings lists all"
		if like := text.Nearest(name, known); like != "" {
			advice[name] = "did you mean " + like + "?"
		}
	}
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(advice)) {
			if !yield(name, advice[name]) {
				return
			}
		}
	}
}

// parsers returns the parsers of settings that are not plain texts or numbers. A type is read by
// one parser wherever it is a setting.
func parsers() map[reflect.Type]env.ParserFunc {
	out := map[reflect.Type]env.ParserFunc{}
	parse(out, parseDuration)
	parse(out, func(v string) (bool, error) { return strconv.ParseBool(strings.ToLower(v)) })
	parse(out, parseCredentials)
	parse(out, parseCertificates)
	parse(out, parseOIDCRoles)
	parse(out, parseFallbacks)
	parse(out, parseHeaders)
	parse(out, parsePassThrough)
	parse(out, parseOrigins)
	parse(out, parseProfiles)
	parse(out, parseRate)
	parse(out, parsePrices)
	parse(out, parseIngest)
	parse(out, parseRedact)
	parse(out, parseAllow)
	parse(out, parseAttributes)
	parse(out, remember.ParseSetting)
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
			return 0, errors.New("must be a number of days")
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(v)
}

// parseRate reads a number of requests, or requests=N,messages=N,bytes=N with parts left out.
func parseRate(v string) (Rate, error) {
	var r Rate
	parts := map[string]*int64{"requests": &r.Requests, "messages": &r.Messages, "bytes": &r.Bytes}
	for part := range strings.SplitSeq(v, ",") {
		name, number, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			name, number = "requests", name
		}
		n, err := strconv.ParseInt(number, 10, 64)
		to := parts[name]
		if to == nil || err != nil || n < 0 || n > maxRate {
			return Rate{}, fmt.Errorf("must be a number of requests, or a list such as requests=100,messages=2000,bytes=4000000, each from 0 to %d and named once, not %q", maxRate, part)
		}
		*to = n
		delete(parts, name)
	}
	return r, nil
}

// maxRate is the largest part of a Rate.
const maxRate = 1_000_000_000

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
	} else if c.StoreURL == memoryStore {
		c.StorePath, c.StoreURL = inMemory, ""
	}
	c.SecretKey = decodeKey(c.SecretKey)
	c.Tracing.derive()
	if c.DefaultProject == "" {
		c.DefaultProject = "default"
		if len(c.Credentials) > 0 {
			c.DefaultProject = c.Credentials[0].Project
		} else if len(c.Certificates) > 0 {
			c.DefaultProject = c.Certificates[0].Project
		} else if len(c.OIDC.Roles) > 0 {
			c.DefaultProject = c.OIDC.Roles[0].Project
		}
	}
}

// checkTogether finds mistakes that concern more than one setting.
func (c *Config) checkTogether(m mistakes) {
	c.checkIngest(m)
	c.checkOIDC(m)
	if c.WebhookSecret != "" && c.WebhookURL == "" {
		m.set("HEARDLOG_WEBHOOK_SECRET", "requires HEARDLOG_WEBHOOK_URL")
	}
	if len(c.LLM.Fallbacks) > 0 && c.LLM.URL == "" {
		m.set("HEARDLOG_LLM_FALLBACKS", "requires HEARDLOG_LLM_URL, the upstream that fallbacks replace")
	}
	if len(c.LLM.Headers) > 0 && c.LLM.URL == "" {
		m.set("HEARDLOG_LLM_HEADERS", "requires HEARDLOG_LLM_URL, the upstream that gets them")
	}
	if _, ok := c.LLM.Headers["Authorization"]; ok && c.LLM.APIKey != "" {
		m.set("HEARDLOG_LLM_HEADERS", "must not have Authorization beside HEARDLOG_LLM_API_KEY, which is sent in that header")
	}
	if c.RecallEmbeddings && c.Embeddings.URL == "" {
		m.set("HEARDLOG_RECALL_EMBEDDINGS", "requires HEARDLOG_EMBEDDINGS_URL, the endpoint that makes them")
	}
	if c.ArchiveAfter > 0 && c.Archive == "" {
		m.set("HEARDLOG_ARCHIVE_AFTER", "requires HEARDLOG_ARCHIVE, where the calls move to")
	}
	if c.Erasures != "" && c.Erasures == c.Archive {
		m.set("HEARDLOG_ERASURES", "must not be the place of HEARDLOG_ARCHIVE: the ledger is kept apart from what it erased")
	}
	if c.NoKey == "start" && (c.AutoJoin == nil && c.Closed() || c.AutoJoin != nil && !*c.AutoJoin) {
		m.set("HEARDLOG_NO_KEY", "start requires HEARDLOG_AUTO_JOIN=true")
	}
	if c.AutoJoin != nil && *c.AutoJoin && c.LLM.URL == "" && c.Realtime.URL == "" {
		m.set("HEARDLOG_AUTO_JOIN", "requires HEARDLOG_LLM_URL or HEARDLOG_REALTIME_URL, the upstream of agents that are created by themselves")
	}
}

// parseAllow reads addresses and address ranges.
func parseAllow(v string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for e := range strings.SplitSeq(v, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		if a, err := netip.ParseAddr(e); err == nil && a.Zone() == "" {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(e)
		if err != nil {
			return nil, fmt.Errorf("must be address ranges such as 10.0.0.0/8, or addresses such as 10.1.2.3, without a port, not %q", e)
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%q has bits set after its prefix; write %s", e, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}
