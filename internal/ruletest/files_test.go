package ruletest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// goFile is a parsed file of this repository.
type goFile struct {
	*ast.File
	name string // from the root, with slashes
	src  string
	fset *token.FileSet
}

// goFiles returns the Go files of all modules of this repository.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var parsed = sync.OnceValues(func() (out []goFile, _ error) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
		out = append(out, goFile{f, filepath.ToSlash(name), string(src), fset})
		return err
	})
	return out, err
})

// receiver returns the name of the type whose method d is.
func receiver(d *ast.FuncDecl) string {
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	switch index := typ.(type) {
	case *ast.IndexExpr:
		typ = index.X
	case *ast.IndexListExpr:
		typ = index.X
	}
	id, _ := typ.(*ast.Ident)
	if id == nil {
		return ""
	}
	return id.Name
}
