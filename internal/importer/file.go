package importer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// entry is one object in a file.
type entry struct {
	file     string
	from, to int64
	atMS     int64 // by which entries are sorted
}

// maxEntry limits one object of a file, in bytes.
const maxEntry = 64 << 20

// eachObject calls f with every object in a file or in the files of a folder: an object, objects
// one after the other, or lists of them. Objects that hold one of the lists, and nothing that f
// would take, count as pages: their entries are passed instead. whole reports whether an object is
// an entry itself.
func eachObject(path string, lists []string, whole func(peek.Value) bool, f func(entry, peek.Value) error) error {
	return filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ext := strings.ToLower(filepath.Ext(name)); name != path && ext != ".json" && ext != ".jsonl" && ext != ".ndjson" {
			return nil
		}
		if err := eachIn(name, lists, whole, f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

func eachIn(name string, lists []string, whole func(peek.Value) bool, f func(entry, peek.Value) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 1<<16)
	list := false
	if first, err := firstByte(r); err != nil {
		return err
	} else if first == '[' {
		list = true
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r.Reset(file)
	dec := json.NewDecoder(r)
	if list {
		if _, err := dec.Token(); err != nil {
			return err
		}
	}
	for !list || dec.More() {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if !list && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("at byte %d: %w", dec.InputOffset(), err)
		}
		if len(raw) > maxEntry {
			return fmt.Errorf("at byte %d: an entry is longer than %d bytes", dec.InputOffset(), maxEntry)
		}
		to := dec.InputOffset()
		if err := pass(entry{file: name, from: to - int64(len(raw)), to: to}, raw, lists, whole, f); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the end of the list
	return err
}

// firstByte returns the first byte that is not a space, 0 for an empty file.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil || !slices.Contains([]byte(" \t\r\n"), b) {
			return b, err
		}
	}
}

// pass calls f with an object, or with the entries of a page.
func pass(e entry, raw json.RawMessage, lists []string, whole func(peek.Value) bool, f func(entry, peek.Value) error) error {
	v := peek.Parse(raw)
	if v.IsObject() && !whole(v) {
		for _, name := range lists {
			page := v.At(name)
			if !page.IsArray() {
				continue
			}
			for _, one := range page.List() {
				at := e.from + int64(one.Offset(raw))
				if err := f(entry{file: e.file, from: at, to: at + int64(len(one))}, one); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return f(e, v)
}

// read returns the object of an entry.
func (e *entry) read() ([]byte, error) {
	file, err := os.Open(e.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	body := make([]byte, e.to-e.from)
	_, err = file.ReadAt(body, e.from)
	return body, err
}
