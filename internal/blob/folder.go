package blob

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// folder is a folder. A file that is being written has partMark and a random suffix behind its
// name.
type folder struct{ path string }

const (
	partMark = ".part-"
	// An older part is abandoned: writing a file touches its part all the time.
	partAge = 24 * time.Hour
)

func newFolder(path string) *folder { return &folder{filepath.Clean(path)} }

func (f *folder) String() string { return f.path }

func (f *folder) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	at := filepath.Join(f.path, name)
	if _, err := os.Lstat(at); err == nil {
		return errThere(at)
	}
	return WriteFile(at, write)
}

func (f *folder) PutBytes(_ context.Context, name string, b []byte) error {
	at := filepath.Join(f.path, name)
	within := filepath.Dir(at)
	if _, err := os.Stat(within); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(within, 0o700); err != nil {
			return err
		}
		if err := errors.Join(syncFolder(f.path), syncFolder(filepath.Dir(f.path))); err != nil {
			return err
		}
	}
	return WriteFile(at, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

func (f *folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	file, err := os.Open(filepath.Join(f.path, name))
	if errors.Is(err, os.ErrNotExist) {
		err = ErrNone
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *folder) List(_ context.Context, prefix string) ([]string, error) {
	list, err := os.ReadDir(f.path) // in order
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range list {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), prefix) && !strings.Contains(e.Name(), partMark) {
			out = append(out, e.Name())
		}
	}
	return out, err
}

func (f *folder) Each(ctx context.Context, fn func(string) error) error {
	return filepath.WalkDir(f.path, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() || strings.Contains(e.Name(), partMark) {
			return err
		}
		name, err := filepath.Rel(f.path, path)
		if name = filepath.ToSlash(name); err != nil || !strings.Contains(name, "/") {
			return err
		}
		return fn(name)
	})
}

func (f *folder) Remove(_ context.Context, name string) error {
	err := os.Remove(filepath.Join(f.path, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (f *folder) Sweep(_ context.Context, such func(string) bool) (n int, err error) {
	list, err := os.ReadDir(f.path)
	for _, e := range list {
		if name, _, part := strings.Cut(e.Name(), partMark); !part || !e.Type().IsRegular() || !such(name) {
			continue
		}
		st, err := e.Info()
		if err != nil || time.Since(st.ModTime()) < partAge {
			continue
		}
		if err := os.Remove(filepath.Join(f.path, e.Name())); err != nil {
			return n, err
		}
		n++
	}
	return n, err
}

// WriteFile writes a file as a whole or not at all, readable by its owner only. It writes under
// another name and renames the file when it is on disk. An existing file is replaced.
func WriteFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partMark+"*")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder writes the names in a folder to disk.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = folder.Sync() // some file systems cannot
	return folder.Close()
}
