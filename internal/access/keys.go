package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/kv"
)

// Bounds of keys.
const (
	MaxKeys = 100 // of one project; those that have ended make room for new ones
	MaxName = 128 // characters
	maxID   = 256 // bytes: the longest project, a dot and 16 digits fit well
)

// keyPrefix begins every secret, so that scanners for leaked secrets can find them.
const keyPrefix = "hl_"

// A key that was looked up is trusted for freshFor. Revoking it therefore takes effect within a
// second on every server that uses the store.
const (
	freshFor  = 800 * time.Millisecond
	lookupFor = 5 * time.Second // limit of a lookup
	cacheSize = 10_000          // keys in use at the same time
	// awayFor is how long a key that was looked up is trusted while the store is away, and
	// awayLookup the limit of a lookup if that is possible; see Keys.Away.
	awayFor    = time.Hour
	awayLookup = 2 * time.Second
)

// Key is a credential of a project, as operators see it: for whom it is, what it may do (its
// scopes) and until when. It has no secret: the store keeps a hash, and the secret is shown once.
type Key struct {
	ID        string // project.digits
	Name      string
	Scopes    []Scope
	CreatedMS int64 // Unix ms
	ExpiresMS int64 // 0 = no end
	RevokedMS int64 // 0 = not revoked
	SignIn    *SignIn
}

// SignIn is the sign-in with an identity provider that a session stands for.
type SignIn struct {
	Subject  string `json:"subject"` // as the provider names the person
	Person   string `json:"person"`  // for people to read
	Settings string `json:"settings"`
	Hint     string `json:"hint,omitempty"` // ID token, which the provider takes at the sign-out
}

// NewKey is a key with its secret, which is shown once.
type NewKey struct {
	Key
	Secret string
}

// storedKey is the stored form of a key. The secret has 256 random bits, so that a plain SHA-256 is
// as good as a slow password hash: there are too many to try, and every request pays for the hash.
// The secret begins with the key's ID, which serves as the salt.
type storedKey struct {
	Name    string  `json:"name"`
	Scopes  []Scope `json:"scopes"`
	Created int64   `json:"created_ms"`
	Expires int64   `json:"expires_ms,omitempty"`
	Revoked int64   `json:"revoked_ms,omitempty"`
	Hash    []byte  `json:"hash"`
	SignIn  *SignIn `json:"sign_in,omitempty"`

	seenMS int64 // last use, if the keys have an idle limit
}

// foundKey is a key as it was in the store at a time or later.
type foundKey struct {
	storedKey
	asOf time.Time
}

// Keys are the stored credentials of all projects. Create it with NewKeys or NewSessions. It is
// safe for concurrent use.
type Keys struct {
	store kv.Store
	space kv.Space // holds the keys of all projects, each under project/id
	now   func() time.Time
	idle  time.Duration                   // after which an unused key ends; 0 = never
	fresh *cache.Cache[string, *foundKey] // by ID
	loads singleflight.Group              // of keys that are not fresh

	// Away reports whether the store is away; err is what a call of it failed with, or nil. Then
	// what was looked up within the last hour counts. If nil, it never does. It is set before use.
	Away func(err error) bool

	exist  atomic.Bool  // there are keys; that never changes
	noneMS atomic.Int64 // when there was last seen to be none, Unix ms
}

// NewKeys returns the keys of a store.
func NewKeys(store kv.Store, now func() time.Time) *Keys {
	return newKeys(store, now, "~keys")
}

// NewSessions returns the keys that stand for sign-ins with a browser. The name of each is the ID
// of the credential that it was made with. A session that is not used for idle ends.
func NewSessions(store kv.Store, now func() time.Time, idle time.Duration) *Keys {
	ks := newKeys(store, now, "~sessions")
	ks.idle = idle
	return ks
}

func newKeys(store kv.Store, now func() time.Time, space string) *Keys {
	return &Keys{store: store, space: kv.Space{Project: space}, now: now, fresh: cache.New[string, *foundKey](cacheSize, nil)}
}

// Create stores a new key of the project with the name, scopes and end of k, and returns it with
// its secret, which is kept nowhere. It fails with fault.Invalid for a bad field, and with
// fault.Quota if the project has MaxKeys keys that have not ended.
func (ks *Keys) Create(ctx context.Context, project string, k Key) (NewKey, error) {
	if err := ks.check(&k); err != nil {
		return NewKey{}, err
	}
	if err := ks.makeRoom(ctx, project); err != nil {
		return NewKey{}, err
	}
	var random [40]byte
	if _, err := rand.Read(random[:]); err != nil {
		return NewKey{}, fault.Wrap(fault.Internal, err, "no random numbers")
	}
	k.CreatedMS, k.RevokedMS = ks.now().UnixMilli(), 0
	k.ID = project + "." + hex.EncodeToString(random[:8])
	value := keyPrefix + k.ID + "." + base64.RawURLEncoding.EncodeToString(random[8:])
	if err := ks.put(ctx, k.ID, newStored(k, value)); err != nil {
		return NewKey{}, err
	}
	ks.exist.Store(true)
	return NewKey{k, value}, nil
}

func newStored(k Key, value string) storedKey {
	hash := sha256.Sum256([]byte(value))
	return storedKey{Name: k.Name, Scopes: k.Scopes, Created: k.CreatedMS, Expires: k.ExpiresMS, Hash: hash[:], SignIn: k.SignIn}
}

// check refuses a key that cannot be stored.
func (ks *Keys) check(k *Key) error {
	if err := text.ValidName("name", k.Name, MaxName); err != nil {
		return err
	}
	if len(k.Scopes) == 0 {
		return fault.At(fault.Missing, "scopes", "must be one or more of %s", joined(Scopes()))
	}
	for i, s := range k.Scopes {
		if !slices.Contains(Scopes(), s) {
			return fault.At(fault.Invalid, "scopes", "must be of %s, not %q", joined(Scopes()), text.Clip(string(s), 40))
		}
		if slices.Contains(k.Scopes[:i], s) {
			return fault.At(fault.Invalid, "scopes", "must not name %s twice", s)
		}
	}
	if k.ExpiresMS != 0 && k.ExpiresMS <= ks.now().UnixMilli() {
		return fault.At(fault.Invalid, "expires_at", "must be in the future, in Unix ms")
	}
	return nil
}

// makeRoom deletes the oldest key that has ended if the project has MaxKeys keys.
func (ks *Keys) makeRoom(ctx context.Context, project string) error {
	list, err := ks.List(ctx, project)
	if err != nil || len(list) < MaxKeys {
		return err
	}
	now := ks.now().UnixMilli()
	i := slices.IndexFunc(list, func(k Key) bool { return k.RevokedMS != 0 || k.ExpiresMS != 0 && k.ExpiresMS <= now })
	if i < 0 {
		return fault.New(fault.Quota, "the project has %d keys already, which is its limit; revoke one", MaxKeys)
	}
	_, err = ks.store.DeleteKey(ctx, ks.space, pathOf(list[i].ID), 0)
	return err
}

// List returns the project's keys, revoked ones too, in the order of their creation.
func (ks *Keys) List(ctx context.Context, project string) ([]Key, error) {
	page, err := ks.store.ListKeys(ctx, ks.space, project+"/", 2*MaxKeys, 0)
	if err != nil {
		return nil, err
	}
	out := []Key{}
	for _, entry := range page.Keys {
		digits, own := strings.CutPrefix(entry.Key, project+"/")
		if !own {
			break
		}
		id := project + "." + digits
		k, err := ks.load(ctx, id)
		switch {
		case fault.Is(err, fault.NotFound):
		case err != nil:
			return nil, err
		default:
			out = append(out, k.key(id))
		}
	}
	slices.SortStableFunc(out, func(a, b Key) int { return cmp.Compare(a.CreatedMS, b.CreatedMS) })
	return out, nil
}

// Revoke ends a key of the project at once, and everywhere within a second. A second call changes
// nothing. It fails with fault.NotFound if the project has no such key.
func (ks *Keys) Revoke(ctx context.Context, project, id string) (Key, error) {
	if owner, _, ok := cutLast(id); !ok || owner != project {
		return Key{}, noKey(id)
	}
	k, err := ks.load(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return Key{}, noKey(id)
	}
	if err != nil {
		return Key{}, err
	}
	if k.Revoked == 0 {
		k.Revoked = ks.now().UnixMilli()
		if err := ks.put(ctx, id, k); err != nil {
			return Key{}, err
		}
	}
	ks.fresh.Remove(id)
	return k.key(id), nil
}

func noKey(id string) error {
	return fault.New(fault.NotFound, "the project has no key %q", text.Clip(id, 80))
}

// Check returns the holder of a secret. id, if not empty, must be that of its key. It fails with
// fault.Unauthenticated for a secret that is wrong, revoked or past its end, and as the store does.
func (ks *Keys) Check(ctx context.Context, id, value string) (Client, error) {
	named := KeyID(value)
	if named == "" || (id != "" && id != named) {
		return Client{}, ErrWrong()
	}
	k, err := ks.lookup(ctx, named)
	switch hash := sha256.Sum256([]byte(value)); {
	case fault.Is(err, fault.NotFound):
		return Client{}, ErrWrong()
	case err != nil:
		return Client{}, err
	case subtle.ConstantTimeCompare(hash[:], k.Hash) != 1:
		return Client{}, ErrWrong()
	}
	if err := ks.ended(named, k); err != nil {
		return Client{}, err
	}
	ks.use(ctx, named, k)
	return Client{Project: ProjectOf(named), ID: named, Name: k.Name, Scopes: k.Scopes, Stored: true, SignIn: k.SignIn}, nil
}

// use marks a key with an idle limit as used. The mark has a place of its own, so that it cannot
// undo that the key was revoked meanwhile. A mark that cannot be stored is tried again by the next
// use.
func (ks *Keys) use(ctx context.Context, id string, k storedKey) {
	now := ks.now()
	if ks.idle == 0 || now.UnixMilli()-k.seenMS < (ks.idle/idleMarks).Milliseconds() {
		return
	}
	mark := kv.Entry{Key: seenPrefix + pathOf(id), UpdatedMS: now.UnixMilli(), ExpiresMS: now.Add(ks.idle).UnixMilli()}
	if kv.Put(ctx, ks.store, ks.space, mark, kv.Limit{}, 0) == nil {
		ks.fresh.Remove(id)
	}
}

const (
	seenPrefix = "~seen/" // no project has a name that begins so
	idleMarks  = 12       // how often a key in use is marked while its idle limit passes
)

// Valid returns nil as long as the key with the ID has not ended, else fault.Unauthenticated. It
// fails as the store does.
func (ks *Keys) Valid(ctx context.Context, id string) error {
	k, err := ks.lookup(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return ErrWrong() // it made room for another
	}
	if err != nil {
		return err
	}
	return ks.ended(id, k)
}

// ended returns fault.Unauthenticated if a key has ended.
func (ks *Keys) ended(id string, k storedKey) error {
	switch {
	case k.Revoked != 0:
		return fault.New(fault.Unauthenticated, "the key %s was revoked", id)
	case k.Expires != 0 && k.Expires <= ks.now().UnixMilli():
		return fault.New(fault.Unauthenticated, "the key %s has expired", id)
	}
	return nil
}

// lookup returns a key as of less than a second ago, or fault.NotFound.
func (ks *Keys) lookup(ctx context.Context, id string) (storedKey, error) {
	now := ks.now()
	known, ok := ks.fresh.Get(id)
	if ok && (now.Sub(known.asOf) <= freshFor || ks.trusts(known.asOf, nil)) {
		return known.storedKey, nil
	}
	shared, err, _ := ks.loads.Do(id, func() (any, error) {
		// It may be shared, so that it must not end with one of its callers.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ks.limit())
		defer cancel()
		asOf := ks.now()
		k, err := ks.load(ctx, id)
		found := &foundKey{k, asOf}
		if err == nil {
			ks.fresh.Set(id, found)
		}
		return found, err
	})
	if fault.Is(err, fault.NotFound) {
		return storedKey{}, noKey(id)
	}
	if err != nil && ok && ks.trusts(known.asOf, err) {
		return known.storedKey, nil
	}
	if err != nil {
		return storedKey{}, err
	}
	k := shared.(*foundKey)
	if now.Sub(k.asOf) > freshFor { // another caller began to load it long ago
		return ks.load(ctx, id)
	}
	return k.storedKey, nil
}

// trusts reports whether what was looked up at a time counts because the store is away.
func (ks *Keys) trusts(asOf time.Time, err error) bool {
	return ks.Away != nil && ks.now().Sub(asOf) < awayFor && ks.Away(err)
}

// limit returns how long a lookup may take.
func (ks *Keys) limit() time.Duration {
	if ks.Away != nil {
		return awayLookup
	}
	return lookupFor
}

// KeyID returns the ID in the secret of a key, "" if it is none.
func KeyID(value string) string {
	rest, ok := strings.CutPrefix(value, keyPrefix)
	id, _, cut := cutLast(rest)
	if !ok || !cut || len(id) > maxID {
		return ""
	}
	return id
}

// ErrWrong returns the error of a credential that is not valid.
func ErrWrong() error {
	return fault.New(fault.Unauthenticated, "the credentials are not valid")
}

// Exist reports whether any key was ever created, as of half a second ago at most. Revoked keys
// count: revoking the last one must not open a server to everybody.
func (ks *Keys) Exist(ctx context.Context) (bool, error) {
	now, none := ks.now().UnixMilli(), time.UnixMilli(ks.noneMS.Load())
	if ks.exist.Load() || now-none.UnixMilli() < (freshFor/2).Milliseconds() || ks.trusts(none, nil) {
		return ks.exist.Load(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, ks.limit())
	defer cancel()
	page, err := ks.store.ListKeys(ctx, ks.space, "", 1, 0)
	switch {
	case err != nil && ks.trusts(none, err):
	case err != nil:
		return false, err
	case len(page.Keys) > 0:
		ks.exist.Store(true)
	default:
		ks.noneMS.Store(now)
	}
	return ks.exist.Load(), nil
}

// load reads a key from the store. It fails with fault.NotFound.
func (ks *Keys) load(ctx context.Context, id string) (k storedKey, err error) {
	names := []string{pathOf(id)}
	if ks.idle > 0 {
		names = append(names, seenPrefix+names[0])
	}
	found, err := ks.store.GetKeys(ctx, ks.space, names, 0)
	if err != nil {
		return k, err
	}
	if len(found) == 0 || found[0].Key != names[0] {
		return k, noKey(id)
	}
	if err := json.Unmarshal(found[0].Value, &k); err != nil {
		return k, fault.Wrap(fault.Internal, err, "a stored key cannot be read")
	}
	k.seenMS = k.Created
	for _, mark := range found[1:] {
		k.seenMS = mark.UpdatedMS
	}
	if end := k.seenMS + ks.idle.Milliseconds(); ks.idle > 0 && (k.Expires == 0 || end < k.Expires) {
		k.Expires = end
	}
	return k, nil
}

func (ks *Keys) put(ctx context.Context, id string, k storedKey) error {
	b, err := json.Marshal(k)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "a key cannot be stored")
	}
	return kv.Put(ctx, ks.store, ks.space, kv.Entry{Key: pathOf(id), Value: b, UpdatedMS: ks.now().UnixMilli(), ExpiresMS: kv.Never}, kv.Limit{}, 0)
}

// key returns a stored key as callers see it.
func (k *storedKey) key(id string) Key {
	return Key{ID: id, Name: k.Name, Scopes: k.Scopes, CreatedMS: k.Created, ExpiresMS: k.Expires, RevokedMS: k.Revoked, SignIn: k.SignIn}
}

// ProjectOf returns the project in the ID of a key.
func ProjectOf(id string) string {
	project, _, _ := cutLast(id)
	return project
}

// pathOf returns where a key is stored. No project has a slash in its name, so that the keys of one
// stand together.
func pathOf(id string) string {
	project, digits, _ := cutLast(id)
	return project + "/" + digits
}

// cutLast cuts s at its last dot.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
