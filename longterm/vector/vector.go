// Package vector keeps collections of documents and finds those that are closest to a query: by
// their words (TF-IDF) or by their embeddings. A Service keeps the collections that were used last
// in memory, as an index that is brought up to date from the store before every search, so that a
// search finds what any server has stored before it.
package vector

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/store/record"
)

// Bounds of collections.
const (
	MaxDimensions  = 4096      // of an embedding
	MaxDocuments   = 200_000   // of a collection
	MaxCollections = 10_000    // of a project or a caller
	MaxBatch       = 1000      // documents or IDs in one call
	MaxContent     = 64 << 10  // bytes
	MaxMetadata    = 16 << 10  // bytes
	MaxKeys        = 64        // of metadata
	MaxID          = 128       // characters
	MaxHits        = 1000      // of a search
	MaxQuery       = 4000      // characters
	maxUser        = 256       // bytes
	spacePrefix    = "vector/" // of the names of record spaces
)

// Collection names a set of documents that are found by their words or by how close their
// embeddings are. A client stores documents with embeddings of its own, or lets the server ask for
// them. With a User it holds that caller's documents, which are
// erased with the caller; they are apart from those of the collection of the same name without one.
type Collection struct{ Project, Name, User string }

func (c Collection) space() record.Space {
	// The slash ends the name, so that no collection's name begins with another's.
	return record.Space{Project: c.Project, Name: spacePrefix + c.Name + "/", User: c.User}
}

var collectionName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// check checks the names, and repairs that of the user as those of callers are.
func (c *Collection) check() (err error) {
	if !collectionName.MatchString(c.Name) {
		return fault.At(fault.Invalid, "collection", "must have 1 to 128 letters, digits, dots, dashes and underscores, and not begin with a dot, not %q", text.Clip(c.Name, 80))
	}
	c.User, err = text.CleanKey("user_id", c.User, maxUser)
	return err
}

// Document is an entry of a collection.
type Document struct {
	ID        string // "" for a new one
	Content   string
	Metadata  json.RawMessage // an object; nil = {}
	Embedding []float32       // nil = none
	// Places in the order of insertion, Unix µs; set by the Service. A document that is replaced
	// keeps its own.
	CreatedUS int64
	UpdatedMS int64

	made []made // by models, of the content; the newest last
}

// made is an embedding that a model made; without a vector the model refused the content.
type made struct {
	model  string
	vector []float32
}

// keepMade is how many models' embeddings a document keeps: a new model's stand beside those of the
// one before.
const keepMade = 2

// setMade adds the embedding of a model.
func (d *Document) setMade(model string, v []float32) {
	d.made = append(slices.DeleteFunc(d.made, func(m made) bool { return m.model == model }), made{model, v})
	d.made = d.made[max(0, len(d.made)-keepMade):]
}

// check checks a document and sets its defaults. field is its path in the request, "" or with a dot
// at its end.
func (d *Document) check(field string) (err error) {
	if d.ID != "" {
		if err := text.ValidID(field+"id", d.ID, MaxID); err != nil {
			return err
		}
	}
	if d.Content, err = text.Clean(field+"content", d.Content, MaxContent); err != nil {
		return err
	}
	if len(d.Metadata) == 0 || string(d.Metadata) == "null" {
		d.Metadata = json.RawMessage("{}")
	}
	if len(d.Metadata) > MaxMetadata {
		return fault.At(fault.Invalid, field+"metadata", "is %d bytes long; at most %d are allowed", len(d.Metadata), MaxMetadata)
	}
	values, err := members(field+"metadata", d.Metadata)
	if err != nil {
		return err
	}
	if len(values) > MaxKeys {
		return fault.At(fault.Invalid, field+"metadata", "has %d keys; at most %d are allowed", len(values), MaxKeys)
	}
	return checkVector(field+"embedding", d.Embedding)
}

// checkVector checks an embedding; nil is none.
func checkVector(field string, v []float32) error {
	if v != nil && (len(v) == 0 || len(v) > MaxDimensions) {
		return fault.At(fault.Invalid, field, "has %d numbers; it must have 1 to %d", len(v), MaxDimensions)
	}
	for i, x := range v {
		if x := float64(x); math.IsNaN(x) || math.IsInf(x, 0) {
			return fault.At(fault.Invalid, field, "number %d is not finite; each must be at most %g", i, math.MaxFloat32)
		}
	}
	return nil
}

// members returns the members of a JSON object, each value in a form in which equal values are
// equal texts.
func members(field string, object json.RawMessage) (map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(object, &raw); err != nil || raw == nil {
		return nil, fault.At(fault.Invalid, field, "must be an object")
	}
	out := make(map[string]string, len(raw))
	for name, value := range raw {
		v := jsontext.Value(value)
		// Integers keep all their digits: IDs may have more than a float64 can hold.
		if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, fault.At(fault.Invalid, field, "cannot be read: %s", text.Clip(name, 80))
		}
		out[name] = string(v)
	}
	return out, nil
}

// stored is the JSON part of a record's body. The embedding follows as float32, little endian, then
// those that models made, each a byte for a number: number/scale, rounded, plus 128.
type stored struct {
	Content    string          `json:"content"`
	Metadata   json.RawMessage `json:"metadata"`
	CreatedUS  int64           `json:"created_us"`
	UpdatedMS  int64           `json:"updated_ms"`
	Dimensions int             `json:"dimensions,omitempty"`
	Made       []storedMade    `json:"made,omitempty"`
}

type storedMade struct {
	Model      string  `json:"model"`
	Dimensions int     `json:"dimensions"`
	Scale      float32 `json:"scale"`
}

// body returns a document as a record holds it: the length of the JSON as a uvarint, the JSON, and
// the embedding.
func (d *Document) body() ([]byte, error) {
	in := stored{Content: d.Content, Metadata: d.Metadata, CreatedUS: d.CreatedUS, UpdatedMS: d.UpdatedMS, Dimensions: len(d.Embedding)}
	var numbers []byte
	for _, m := range d.made {
		var scale float32
		numbers, scale = appendBytes(numbers, m.vector)
		in.Made = append(in.Made, storedMade{m.model, len(m.vector), scale})
	}
	head, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, binary.MaxVarintLen32+len(head)+4*len(d.Embedding)+len(numbers))
	b = append(binary.AppendUvarint(b, uint64(len(head))), head...)
	return append(appendFloats(b, d.Embedding), numbers...), nil
}

// document returns the document of a record.
func document(r *record.Record) (Document, error) {
	broken := fault.New(fault.Internal, "the record of document %q cannot be read", r.ID)
	n, size := binary.Uvarint(r.Body)
	if size <= 0 || n > uint64(len(r.Body)-size) {
		return Document{}, broken
	}
	head, rest := r.Body[size:size+int(n)], r.Body[size+int(n):]
	var in stored
	if err := json.Unmarshal(head, &in); err != nil || in.Dimensions < 0 || in.Dimensions > len(rest)/4 {
		return Document{}, broken
	}
	d := Document{ID: r.ID, Content: in.Content, Metadata: in.Metadata, CreatedUS: in.CreatedUS, UpdatedMS: in.UpdatedMS}
	d.Embedding, rest = floats(rest[:4*in.Dimensions]), rest[4*in.Dimensions:]
	for _, m := range in.Made {
		if m.Dimensions < 0 || m.Dimensions > len(rest) {
			return Document{}, broken
		}
		v := make([]float32, m.Dimensions)
		for i := range v {
			v[i] = (float32(rest[i]) - 128) * m.Scale
		}
		d.made, rest = append(d.made, made{m.Model, v}), rest[m.Dimensions:]
	}
	return d, nil
}

// appendBytes appends a vector with a byte for each number, and returns its scale.
func appendBytes(b []byte, v []float32) ([]byte, float32) {
	row := make([]uint64, (len(v)+7)/8)
	about := pack(v, row)
	for i := range v {
		b = append(b, byte(row[i/8]>>(i%8*8)))
	}
	return b, about.scale
}

func appendFloats(b []byte, v []float32) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// floats returns the numbers of appendFloats, nil for none.
func floats(b []byte) []float32 {
	if len(b) == 0 {
		return nil
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
