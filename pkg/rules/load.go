package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxFiles bounds the rule files of one set.
	maxFiles = 10_000
	// maxFolders bounds how deep folders nest; symbolic links may make them nest without end.
	maxFolders = 16
)

// Load reads, checks and compiles files and folders.
//
// A folder stands for the *.yaml and *.yml files in it and in the folders below it, in the order of their paths. Files and
// folders whose names begin with a dot are left out, symbolic links are followed, and a file that is reached twice is read
// once. A path that is given as a file is read whatever its name.
//
// The error is Problems and holds everything that is wrong. It wraps ErrNoRules if there is nothing wrong but that the files hold
// no domain.
func Load(paths []string, opts Options) (*Table, error) {
	files, problems := settled(func() ([]file, Problems) { return readFiles(paths) })
	return compileFiles(files, problems, opts)
}

// maxReads bounds how often files are read until they stay the same.
const maxReads = 5

// settled reads until two reads in a row are the same, so that a set of files that is swapped in the meantime is not taken
// half from before and half from after. Files that never stay the same are taken as they are; whatever changes them will
// be noticed.
func settled(read func() ([]file, Problems)) ([]file, Problems) {
	files, problems := read()
	content := contentOf(files, problems)
	for range maxReads - 1 {
		var again [sha256.Size]byte
		files, problems = read()
		if again = contentOf(files, problems); again == content {
			break
		}
		content = again
	}
	return files, problems
}

// contentOf hashes what was read.
func contentOf(files []file, problems Problems) (sum [sha256.Size]byte) {
	h := sha256.New()
	write := func(data []byte) {
		h.Write(binary.AppendUvarint(nil, uint64(len(data))))
		h.Write(data)
	}
	for _, f := range files {
		write([]byte(f.path))
		write(f.data)
	}
	for _, p := range problems {
		write([]byte(p.String()))
	}
	h.Sum(sum[:0])
	return sum
}

// file is a rule file's content.
type file struct {
	path string
	data []byte
}

// compileFiles parses and compiles files, together with the problems of reading them.
func compileFiles(files []file, problems Problems, opts Options) (*Table, error) {
	sources := make([]*Source, len(files))
	c := newCompiler(opts, layer{sources: sources})
	c.problems.add(problems...)
	for i, f := range files {
		var found Problems
		sources[i], found = Parse(f.path, f.data)
		c.problems.add(found...)
	}
	c.compile(nil)
	table := c.table
	if len(table.names) == 0 && !c.problems.list.fatal() {
		c.problems.add(Problem{
			Message: "there are no rules", Fix: "add a *.yaml file with a domain", cause: ErrNoRules,
		})
	}
	all := c.problems.sorted()
	if all.fatal() {
		return nil, all
	}
	table.warnings = all
	for _, source := range sources {
		source.forgetText()
	}
	return table, nil
}

// readFiles reads all rule files below the paths, in the order of the paths and within one of the names.
func readFiles(paths []string) ([]file, Problems) {
	r := reader{seen: map[string]bool{}}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			r.fault(path, err)
		case info.IsDir():
			r.folder(path, 1)
		default:
			r.file(path)
		}
	}
	return r.files, r.problems
}

type reader struct {
	files    []file
	problems Problems
	seen     map[string]bool
}

func (r *reader) folder(path string, depth int) {
	if depth > maxFolders {
		r.problems = append(r.problems, Problem{
			File: path, Message: fmt.Sprintf("folders nest deeper than %d levels", maxFolders), Fix: "look for a symbolic link that leads upwards",
		})
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		r.fault(path, err)
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		if hidden(entry.Name()) {
			continue
		}
		info, err := os.Stat(name)
		switch {
		case err != nil && !ruleFile(entry.Name()): // a dangling link to anything
		case err != nil:
			r.fault(name, err)
		case info.IsDir():
			r.folder(name, depth+1)
		case ruleFile(entry.Name()):
			r.file(name)
		}
	}
}

// hidden tells names that are not rules: those that begin with a dot.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

func ruleFile(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

func (r *reader) file(path string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		r.fault(path, err)
		return
	}
	if r.seen[real] {
		return
	}
	r.seen[real] = true
	if len(r.files) == maxFiles {
		r.problems = append(r.problems, Problem{File: path, Message: fmt.Sprintf("more than %d rule files", maxFiles), Fix: "put several domains into one file, as documents"})
	}
	if len(r.files) >= maxFiles {
		return
	}
	data, err := readBounded(path)
	if err != nil {
		r.fault(path, err)
		return
	}
	r.files = append(r.files, file{path, data})
}

// readBounded reads at most one byte more than a rule file may have: Parse reports that byte.
func readBounded(path string) ([]byte, error) {
	// A pipe would block in Open.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileSize+1))
}

func (r *reader) fault(path string, err error) {
	fix := "check the path and its permissions"
	message := err.Error()
	if inPath, ok := errors.AsType[*fs.PathError](err); ok {
		message = inPath.Err.Error()
	}
	r.problems = append(r.problems, Problem{File: path, Message: "cannot be read: " + message, Fix: fix, cause: err})
}
