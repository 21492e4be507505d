package rules

import (
	"os"
	"path/filepath"
	"strings"
)

const (
	// maxScope bounds the folders that are watched; those beyond are polled.
	maxScope = 1000
	// maxLinks bounds the symbolic links that are followed in one path, as systems do.
	maxLinks = 40
)

// scope is the folders in which a change may change the rules, by their real paths. To each belong the names that count in it;
// nil stands for all.
type scope map[string]map[string]bool

// scopeOf finds the folders that matter to rule files and folders at absolute paths.
func scopeOf(paths []string) scope {
	s := scope{}
	for _, path := range paths {
		s.add(path, 1)
	}
	return s
}

// holds tells whether a path is one of the folders, or a name that counts in one.
func (s scope) holds(path string) bool {
	if _, ok := s[path]; ok {
		return true
	}
	names, ok := s[filepath.Dir(path)]
	return ok && (names == nil || names[filepath.Base(path)])
}

// add takes in what leads to a path, and, if that is a folder, everything below it that is read.
func (s scope) add(path string, depth int) {
	real, ok := s.trail(path)
	if !ok || depth > maxFolders {
		return
	}
	info, err := os.Lstat(real)
	if err != nil || !info.IsDir() {
		return
	}
	if names, ok := s[real]; ok && names == nil {
		return // seen already
	}
	if len(s) >= maxScope {
		return
	}
	s[real] = nil
	entries, err := os.ReadDir(real)
	if err != nil {
		return
	}
	for _, entry := range entries {
		link := entry.Type()&os.ModeSymlink != 0
		if !hidden(entry.Name()) && (link || entry.IsDir()) {
			s.add(filepath.Join(real, entry.Name()), depth+1)
		}
	}
}

// trail resolves a path link by link. The folder of each link counts, because the link may be swapped, and the folder in
// which the path ends or, where something is missing, the one in which it would be.
func (s scope) trail(path string) (real string, ok bool) {
	root := filepath.VolumeName(path) + string(filepath.Separator)
	done, rest := root, strings.TrimPrefix(path, root)
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, string(filepath.Separator))
		switch name {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, name)
		info, err := os.Lstat(next)
		if err != nil {
			s.name(done, name)
			return "", false
		}
		if info.Mode()&os.ModeSymlink == 0 {
			if rest == "" {
				s.name(done, name)
			}
			done = next
			continue
		}
		s.name(done, name)
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return "", false
		}
		if filepath.IsAbs(target) {
			done, target = root, strings.TrimPrefix(target, root)
		}
		rest = strings.TrimRight(target+string(filepath.Separator)+rest, string(filepath.Separator))
	}
	return done, true
}

// name makes a name in a folder count.
func (s scope) name(folder, name string) {
	names, ok := s[folder]
	if ok && names == nil {
		return
	}
	if names == nil {
		if len(s) >= maxScope {
			return
		}
		names = map[string]bool{}
		s[folder] = names
	}
	names[name] = true
}
