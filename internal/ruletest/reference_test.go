package ruletest_test

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/heardlog/heardlog/"

// reference matches pkg.Name and pkg.Type.Member in a comment, unless they are the end of a longer
// word, a path or an address.
var reference = regexp.MustCompile(`(?:^|[^\w./-])([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// TestReferences checks that a comment that names an exported name of a package of this module
// names one that exists. A name such as context, which some file imports from another module, is
// taken for our package only in the files that import ours.
func TestReferences(t *testing.T) {
	t.Parallel()
	files := goFiles(t)
	packages := map[string]map[string]bool{} // by folder: Name, and Type.Member
	folders := map[string][]string{}         // by the package's name
	foreign := map[string]bool{}             // names of packages of other modules
	for _, f := range files {
		for name, dir := range f.imports() {
			foreign[name] = foreign[name] || dir == ""
		}
		if strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		dir := path.Dir(f.name)
		if packages[dir] == nil {
			packages[dir] = map[string]bool{}
			folders[f.Name.Name] = append(folders[f.Name.Name], dir)
		}
		f.exported(packages[dir])
	}
	found := 0
	for _, f := range files {
		imports := f.imports()
		for _, group := range f.Comments {
			for _, c := range group.List {
				for _, m := range reference.FindAllStringSubmatch(c.Text, -1) {
					dirs := folders[m[1]]
					if dir, ok := imports[m[1]]; ok && dir == "" || !ok && foreign[m[1]] && !slices.Contains(dirs, path.Dir(f.name)) {
						continue
					} else if ok {
						dirs = []string{dir}
					}
					found += len(dirs)
					if len(dirs) > 0 && !slices.ContainsFunc(dirs, func(dir string) bool { return declares(packages[dir], m[2], m[3]) }) {
						t.Errorf("%s:%d: there is no %s in %s", f.name, f.fset.Position(c.Pos()).Line, m[0], strings.Join(dirs, ", "))
					}
				}
			}
		}
	}
	if found == 0 {
		t.Fatal("no references found")
	}
}

// declares reports whether name, and its member unless that is "", are among a package's names.
func declares(names map[string]bool, name, member string) bool {
	return names[name] && (member == "" || names[name+"."+member] || names[name+".*"])
}

// imports returns the folders of the packages that the file imports by the name that it uses for
// each; "" for a package of another module.
func (f goFile) imports() map[string]string {
	out := map[string]string{}
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		dir, ours := strings.CutPrefix(p, module)
		if !ours {
			dir = ""
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		out[name] = dir
	}
	return out
}

// exported adds what the file declares to names: Name, and Type.Member for methods and fields.
// Type.* stands for a type that has members of another one.
func (f goFile) exported(names map[string]bool) {
	member := func(typ string, list *ast.FieldList) {
		for _, field := range list.List {
			if len(field.Names) == 0 {
				names[typ+".*"] = true
			}
			for _, id := range field.Names {
				names[typ+"."+id.Name] = true
			}
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d) + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
					switch typ := s.Type.(type) {
					case *ast.StructType:
						member(s.Name.Name, typ.Fields)
					case *ast.InterfaceType:
						member(s.Name.Name, typ.Methods)
					default:
						names[s.Name.Name+".*"] = true
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						names[id.Name] = true
					}
				}
			}
		}
	}
}
