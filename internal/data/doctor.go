package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

// Levels of a diagnosis.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "FAIL"
)

// diagnosis is one result.
type diagnosis struct {
	Level string `json:"level"`
	About string `json:"about"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"` // advice
}

// Limits that the doctor checks.
const (
	lowDisk      = 1 << 30         // bytes free
	maxSkew      = 5 * time.Second // of clocks; signatures of webhooks allow some minutes
	checkTimeout = 10 * time.Second
	maxDamage    = 10   // signs that are written
	firstYear    = 2025 // a clock before this year was never set
)

type doctorCommand struct {
	JSON    bool `name:"json" help:"Write one JSON object a line."`
	Offline bool `help:"Ask nothing over the network but the store."`
}

// Help returns the details.
func (*doctorCommand) Help() string {
	return "Checks what a server with these settings needs: the settings, the store and the room on its disk, the clock, and whether the LLM and the webhook receiver of the settings answer. They are asked as the server would ask them, but without a key. It changes nothing, shows no secret, and may run beside a server. The exit code is 0 if nothing fails; warnings do not fail."
}

// Run writes the diagnoses.
func (o *doctorCommand) Run(ctx context.Context, e Env) error {
	failed := false
	var wrote error
	d := &diagnoser{ctx: ctx, e: e, offline: o.Offline, say: func(n diagnosis) {
		failed = failed || n.Level == levelFail
		var err error
		if o.JSON {
			err = json.NewEncoder(e.Stdout).Encode(n)
		} else {
			do := ""
			if n.Do != "" {
				do = "\n              → " + n.Do
			}
			_, err = fmt.Fprintf(e.Stdout, "%-4s %-8s %s%s\n", n.Level, n.About, n.What, do)
		}
		wrote = errors.Join(wrote, err)
	}}
	c := d.settings()
	d.store(c)
	d.ledger(c)
	d.clock()
	if !o.Offline {
		d.archive(c)
		d.upstream(c)
		d.receiver(c)
	}
	if wrote == nil && failed {
		return ErrFound
	}
	return wrote
}

type diagnoser struct {
	ctx     context.Context
	e       Env
	offline bool
	say     func(diagnosis)
}

// settings checks the settings and returns them. Those with mistakes are zero.
func (d *diagnoser) settings() config.Config {
	c, err := config.Load(d.e.Getenv)
	if err == nil {
		err = app.Check(c)
	}
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			d.say(diagnosis{levelFail, "settings", line, "correct the setting; heardlog help settings lists all"})
		}
	}
	for name, advice := range config.Unknown(d.e.Environ) {
		d.say(diagnosis{levelWarn, "settings", name + " is not a setting", advice})
	}
	if err == nil {
		d.say(diagnosis{Level: levelOK, About: "settings", What: "all can be read"})
	}
	if len(c.Credentials)+len(c.Certificates) == 0 {
		d.say(diagnosis{levelWarn, "settings", "no credentials: unless the store has keys, any request from this machine is accepted", "set HEARDLOG_CREDENTIALS or create a key, see heardlog keys, before others use it"})
	}
	if err := c.FetchDataKey(d.ctx); err != nil {
		d.say(diagnosis{levelFail, "settings", err.Error(), "the server cannot start without the key; look at the file or the command"})
	}
	if c.SecretKey == "" && c.DataKey == "" {
		d.say(diagnosis{levelWarn, "settings", "no secret key: LLM keys and webhook secrets are stored as they are", "set HEARDLOG_SECRET_KEY; what is stored is encrypted at the next start"})
	}
	return c
}

func (d *diagnoser) store(c config.Config) {
	switch {
	case c.InMemory():
		d.say(diagnosis{levelWarn, "store", "memory: everything is lost when the server stops", "set HEARDLOG_STORE to sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE"})
	case c.StoreURL != "":
		d.postgres(c)
	case c.StorePath != "":
		d.sqlite(c)
	}
}

func (d *diagnoser) postgres(c config.Config) {
	p, err := postgres.Probe(d.ctx, c.StoreURL.Reveal())
	if err != nil {
		what, do := postgres.Plain(err)
		d.say(diagnosis{levelFail, "store", storeName(c) + ": " + what, do})
		return
	}
	d.say(diagnosis{Level: levelOK, About: "store", What: fmt.Sprintf("%s answers: PostgreSQL %s, schema %d of %d", storeName(c), p.Version, p.Schema, p.Known)})
	if p.ReadOnly {
		d.say(diagnosis{levelFail, "store", "the database takes no writes: it is a standby, or its transactions are read-only", "name the primary in HEARDLOG_STORE"})
	}
	if p.Schema > p.Known {
		d.say(diagnosis{levelFail, "store", "a newer version has written the database", "use that version or a newer one"})
	}
	if p.Schema == 0 && !p.CanCreate {
		d.say(diagnosis{levelFail, "store", "there are no tables yet, and the user may not make them", "GRANT CREATE on the schema to the user"})
	}
	if p.Schema > 0 && p.Schema < p.Known {
		d.say(diagnosis{levelWarn, "store", "the tables are those of an older version", "the next start of a server brings them up to date; its user must own them"})
	}
	if len(p.Denied) > 0 {
		d.say(diagnosis{levelFail, "store", "the user lacks rights: " + strings.Join(p.Denied, ", "), "GRANT them to the user, or let the user own the tables"})
	}
	if p.Schema == p.Known && p.CanRead {
		from, err := postgres.OpenReader(d.ctx, tableOptions(c))
		switch {
		case fault.Is(err, fault.Invalid):
			d.say(diagnosis{levelFail, "store", err.Error(), "set HEARDLOG_SECRET_KEY to the key that this database was first served with; a lost one cannot be replaced"})
		case err != nil:
			what, do := postgres.Plain(err)
			d.say(diagnosis{levelFail, "store", "it cannot be read: " + what, do})
		default:
			d.unfinished(from)
			d.erasures(c, from)
			_ = from.Close()
		}
	}
	switch {
	case p.Waiting > 0:
		d.say(diagnosis{levelFail, "store", fmt.Sprintf("commits are waiting for a synchronous standby (synchronous_standby_names is %q): %d of them for longer than a second; no write succeeds", p.Standbys, p.Waiting), standbyAdvice})
	case p.Standbys != "" && p.Connected == 0:
		d.say(diagnosis{levelFail, "store", fmt.Sprintf("no standby is connected, and commits wait for one (synchronous_standby_names is %q): no write will succeed", p.Standbys), standbyAdvice})
	}
	if p.Async {
		d.say(diagnosis{levelWarn, "store", "synchronous_commit is off by default there; connections of the server set it on", ""})
	}
	d.skew(storeName(c), p.Skew)
}

const standbyAdvice = "bring the standby back, or add another one; only if it is lost for good and the primary stays alone, empty synchronous_standby_names there and reload"

// unfinished warns if an import was not finished.
func (d *diagnoser) unfinished(s interface {
	Unfinished(ctx context.Context) (bool, error)
}) {
	if there, err := s.Unfinished(d.ctx); err != nil {
		d.say(diagnosis{levelFail, "store", err.Error(), ""})
	} else if there {
		d.say(diagnosis{levelWarn, "store", "an import, restore or migration into it was not finished or is still running", "run it again, or accept the store as it is with import --forget"})
	}
}

// erasures compares the ledger of erasures with the store.
func (d *diagnoser) erasures(c config.Config, s erasure.Reader) {
	at := app.ErasuresPlace(c)
	if at == "" || d.offline && blob.IsURL(at) {
		return
	}
	l, err := app.OpenErasures(c)
	n := 0
	if err == nil {
		n, err = l.Pending(d.ctx, s)
	}
	switch {
	case err != nil:
		d.say(diagnosis{levelFail, "erasures", err.Error(), "correct HEARDLOG_ERASURES, the keys of the bucket, or the owner of the folder; the server does not start without the ledger"})
	case n > 0:
		d.say(diagnosis{levelWarn, "erasures", fmt.Sprintf("the ledger %s has %d erasures that the store has not applied, as after a restore", l, n), "the next start of a server applies them before it serves; one that runs does within 10 minutes"})
	default:
		d.say(diagnosis{Level: levelOK, About: "erasures", What: fmt.Sprintf("the store has applied all erasures of the ledger %s", l)})
	}
}

// ledger writes an object into the ledger of erasures and reads it back.
func (d *diagnoser) ledger(c config.Config) {
	at := app.ErasuresPlace(c)
	if at == "" {
		if !c.InMemory() {
			d.say(diagnosis{levelWarn, "erasures", "no ledger of erasures: what is erased comes back with a restore of an earlier backup", "set HEARDLOG_ERASURES to a folder that all servers share, or to a bucket"})
		}
		return
	}
	if d.offline && blob.IsURL(at) {
		return
	}
	if _, err := os.Stat(at); !blob.IsURL(at) && errors.Is(err, os.ErrNotExist) {
		return // a folder is made with its first entry
	}
	l, err := app.OpenErasures(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(d.ctx, checkTimeout)
		defer cancel()
		err = l.Check(ctx)
	}
	if err != nil {
		d.say(diagnosis{levelFail, "erasures", err.Error(), "correct HEARDLOG_ERASURES, the keys of the bucket, or the owner of the folder: no erasure succeeds"})
	}
}

func (d *diagnoser) sqlite(c config.Config) {
	path, err := filepath.Abs(c.StorePath)
	if err != nil {
		d.say(diagnosis{levelFail, "store", err.Error(), "give HEARDLOG_STORE an absolute path"})
		return
	}
	folder := filepath.Dir(path)
	size := int64(0)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.say(diagnosis{Level: levelOK, About: "store", What: path + " is not there yet; the server makes it"})
		for folder != filepath.Dir(folder) {
			if _, err := os.Stat(folder); err == nil {
				break
			}
			// The first existing one decides whether the others can be created.
			folder = filepath.Dir(folder)
		}
	case err != nil:
		d.say(diagnosis{levelFail, "store", err.Error(), "look at owner and permissions of the path"})
		return
	default:
		size = st.Size()
		r, err := sqlite.OpenReader(sqlite.Options{Path: path, SealKey: []byte(c.SecretKey.Reveal()), DataKey: []byte(c.TextKey.Reveal())})
		if err != nil {
			d.say(diagnosis{levelFail, "store", path + " cannot be read: " + err.Error(), "a file of an older version is brought up to date at the next start; a lost secret key cannot be replaced"})
		} else {
			d.say(diagnosis{Level: levelOK, About: "store", What: fmt.Sprintf("%s can be read, %s", path, bytesText(size))})
			d.unfinished(r)
			d.erasures(c, r)
			d.damage(r)
			_ = r.Close()
		}
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err != nil {
			d.say(diagnosis{levelFail, "store", "the database file cannot be written: " + err.Error(), "run as the user that the server runs as, or correct owner and permissions"})
		} else {
			_ = f.Close()
		}
	}
	if f, err := os.CreateTemp(folder, ".heardlog-doctor-*"); err != nil {
		d.say(diagnosis{levelFail, "store", "the folder " + folder + " cannot be written: " + err.Error(), "correct its owner and permissions, or name another path in HEARDLOG_STORE"})
	} else {
		_, err := f.Write(make([]byte, 4096))
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
		if err != nil {
			d.say(diagnosis{levelFail, "store", "writing into " + folder + " fails: " + err.Error(), "look for free space, quotas and disk errors"})
		} else {
			d.say(diagnosis{Level: levelOK, About: "store", What: folder + " can be written"})
		}
	}
	d.room(folder, size)
}

// damage looks for signs that the file is damaged.
func (d *diagnoser) damage(r *sqlite.Reader) {
	n := 0
	err := r.Damage(d.ctx, func(what string) {
		if n++; n <= maxDamage {
			d.say(diagnosis{levelFail, "store", "the file is damaged: " + what, "stop the server and run heardlog restore --overwrite with a backup"})
		}
	})
	if err != nil {
		d.say(diagnosis{levelFail, "store", err.Error(), ""})
	}
}

// room checks the free space of the disk.
func (d *diagnoser) room(folder string, size int64) {
	free, err := freeBytes(folder)
	switch {
	case err != nil:
		d.say(diagnosis{levelWarn, "disk", "the free space cannot be read: " + err.Error(), ""})
	case free < lowDisk:
		d.say(diagnosis{levelWarn, "disk", bytesText(free) + " free", "make room: without any the server refuses what it is to keep"})
	case free < 2*size:
		d.say(diagnosis{levelWarn, "disk", fmt.Sprintf("%s free, and the database has %s", bytesText(free), bytesText(size)), "make room: a copy of the database needs as much again"})
	default:
		d.say(diagnosis{Level: levelOK, About: "disk", What: bytesText(free) + " free"})
	}
}

func bytesText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func (d *diagnoser) clock() {
	now := time.Now()
	if now.Year() < firstYear {
		d.say(diagnosis{levelFail, "clock", "it is " + now.UTC().Format(time.RFC3339) + " here", "set the clock; timestamps, timers and signatures go by it"})
		return
	}
	d.say(diagnosis{Level: levelOK, About: "clock", What: now.UTC().Format(time.RFC3339)})
}

// skew compares our clock with another.
func (d *diagnoser) skew(whose string, by time.Duration) {
	if by.Abs() > maxSkew {
		d.say(diagnosis{levelWarn, "clock", fmt.Sprintf("ours is %s off that of %s", by.Round(time.Second), whose), "synchronise the clocks: receivers refuse signatures that are minutes old"})
	}
}

// archive writes an object into the archive and reads it back.
func (d *diagnoser) archive(c config.Config) {
	if c.Archive == "" {
		return
	}
	a, err := app.OpenArchive(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(d.ctx, checkTimeout)
		defer cancel()
		err = a.Check(ctx)
	}
	if err != nil {
		d.say(diagnosis{levelFail, "archive", err.Error(), "correct HEARDLOG_ARCHIVE, the keys of the bucket, or the owner of the folder"})
		return
	}
	d.say(diagnosis{Level: levelOK, About: "archive", What: "can be written and read back"})
}

func (d *diagnoser) upstream(c config.Config) {
	if c.LLM.URL == "" {
		d.say(diagnosis{Level: levelOK, About: "upstream", What: "no LLM in the settings; agents bring their own"})
		return
	}
	d.reach(c, "upstream", c.LLM.URL, "HEARDLOG_LLM_URL")
	for _, f := range c.LLM.Fallbacks {
		d.reach(c, "upstream", f.URL, "HEARDLOG_LLM_FALLBACKS")
	}
}

func (d *diagnoser) receiver(c config.Config) {
	switch {
	case c.WebhookURL == "":
		d.say(diagnosis{Level: levelOK, About: "webhook", What: "no receiver in the settings"})
	case c.WebhookProxy != "":
		d.say(diagnosis{Level: levelOK, About: "webhook", What: hostOf(c.WebhookURL) + " is reached through the proxy, which is not tried here"})
	default:
		d.reach(c, "webhook", c.WebhookURL, "HEARDLOG_WEBHOOK_URL")
	}
}

// reach sends a HEAD request through the guard of all outgoing calls. Any answer counts as success.
func (d *diagnoser) reach(c config.Config, about, raw, setting string) {
	host := hostOf(raw)
	g := guard.New(guard.Options{Allow: c.OutboundAllow, AllowLoopback: c.Loopback})
	t := &http.Transport{DialContext: g.DialContext, TLSHandshakeTimeout: checkTimeout, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(d.ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, raw, nil)
	if err != nil {
		d.say(diagnosis{levelFail, about, host + ": the URL cannot be used", "correct " + setting})
		return
	}
	req.Header.Set("User-Agent", "heardlog-doctor")
	began := time.Now()
	resp, err := t.RoundTrip(req)
	if err != nil {
		do := "look at " + setting + ", at the network and at the other side"
		if blocked, ok := errors.AsType[*guard.Blocked](err); ok {
			err, do = blocked, "allow it with "+guard.Setting+" if it is meant"
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", checkTimeout)
		}
		d.say(diagnosis{levelFail, about, host + " cannot be reached: " + plain(err), do})
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	_ = resp.Body.Close()
	level, do := levelOK, ""
	if resp.StatusCode >= 500 {
		level, do = levelWarn, "look at the other side"
	}
	d.say(diagnosis{level, about, fmt.Sprintf("%s answers (status %d to a HEAD without a key) in %d ms", host, resp.StatusCode, time.Since(began).Milliseconds()), do})
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		d.skew(host, time.Until(at)+time.Since(began)/2)
	}
}

// hostOf returns scheme and host of a URL. Paths and queries may hold keys and are not shown.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the URL"
	}
	return u.Scheme + "://" + u.Host
}

// plain returns an error's text without the address that package net puts in front.
func plain(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
