package packaging

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/weirhq/weir/test/servers"
)

const imageUser = 65532

// image is what the Dockerfile's last stage says.
type image struct {
	bases               []string // of all stages
	copied              []copied
	user                string
	exposed             []string
	env                 []string // NAME=VALUE
	volumes             []string // folders that containers write to
	entrypoint, command []string
	ran                 []string // programs run in the last stage
}

type copied struct {
	from    string // stage, or empty for the build context
	owner   string // empty: root
	sources []string
	dest    string
}

// loadImage reads the Dockerfile. hadolint has checked that the file is well formed.
func loadImage(t *testing.T) image {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(servers.Root(t), "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(content), "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var i image
	for line := range strings.Lines(text) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch instruction {
		case "FROM":
			words = slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "--") })
			i = image{bases: append(i.bases, words[0])} // a new stage starts empty
		case "COPY":
			var c copied
			for strings.HasPrefix(words[0], "--") {
				switch flag, value, _ := strings.Cut(words[0], "="); flag {
				case "--from":
					c.from = value
				case "--chown":
					c.owner = value
				default:
					t.Fatalf("COPY %s: this test does not know %s", rest, flag)
				}
				words = words[1:]
			}
			if len(words) < 2 {
				t.Fatalf("COPY %s: want sources and a destination", rest)
			}
			c.sources, c.dest = words[:len(words)-1], words[len(words)-1]
			i.copied = append(i.copied, c)
		case "USER":
			i.user = rest
		case "EXPOSE":
			i.exposed = words
		case "ENV":
			i.env = append(i.env, words...)
		case "VOLUME":
			i.volumes = append(i.volumes, words...)
		case "ENTRYPOINT":
			i.entrypoint = execForm(t, rest)
		case "CMD":
			i.command = execForm(t, rest)
		case "RUN":
			i.ran = append(i.ran, rest)
		}
	}
	return i
}

// execForm reads a command that needs no shell.
func execForm(t *testing.T, text string) []string {
	t.Helper()
	var words []string
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		t.Fatalf("%s is not a JSON list, and the image has no shell to run anything else: %v", text, err)
	}
	return words
}

func TestDockerfile(t *testing.T) {
	image := loadImage(t)
	if last := image.bases[len(image.bases)-1]; last != "scratch" {
		t.Errorf("the image is based on %s, want scratch: nothing to update but weir itself", last)
	}
	if len(image.ran) > 0 {
		t.Errorf("the image runs %q when it is built, and has nothing to run", image.ran)
	}
	if want := fmt.Sprintf("%d:%[1]d", imageUser); image.user != want {
		t.Errorf("the image runs as %q, want %s", image.user, want)
	}
	gomod, err := os.ReadFile(filepath.Join(servers.Root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (.+)$`).FindSubmatch(gomod)[1]
	if want := "golang:" + string(version) + "-"; !strings.HasPrefix(image.bases[0], want) {
		t.Errorf("the image is built with %s, and go.mod asks for Go %s", image.bases[0], version)
	}
}

// What .dockerignore lets through is all that the binary is made of.
func TestBuildContext(t *testing.T) {
	root := servers.Root(t)
	content, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			allowed[name] = true
		}
	}
	needed := []string{"go.mod", "go.sum", "Makefile"}
	for _, c := range loadImage(t).copied {
		if c.from == "" {
			needed = append(needed, c.sources...)
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"-f", `{{if and .Module .Module.Main}}{{.Dir}}{{end}}`, "./cmd/weir")
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dir := range strings.FieldsSeq(string(output)) {
		relative, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		needed = append(needed, relative)
	}
	for _, path := range needed {
		if top, _, _ := strings.Cut(filepath.ToSlash(path), "/"); !allowed[top] {
			t.Errorf("the image is built from %s, which .dockerignore leaves out", path)
		}
	}
}

// layOut makes the image's root file system in a folder, as docker build would.
func layOut(t *testing.T) string {
	t.Helper()
	root, module := t.TempDir(), servers.Root(t)
	binary := buildBinary(t)
	for _, c := range loadImage(t).copied {
		if len(c.sources) != 1 {
			t.Fatalf("COPY of %v: this test knows only how to copy one thing", c.sources)
		}
		source := c.sources[0]
		switch {
		case c.from == "":
			source = filepath.Join(module, source)
		case source == "/src/bin/weir":
			source = binary
		case slices.Contains(loadImage(t).volumes, source):
			makeVolume(t, filepath.Join(root, c.dest))
			continue
		case source == "/links":
			makeLinks(t, filepath.Join(root, c.dest))
			continue
		case strings.HasPrefix(source, "/etc/ssl/"):
			continue // the builder's; whether this machine has any says nothing about the image
		default:
			t.Fatalf("this test does not know where %s of the stage %s comes from", source, c.from)
		}
		copyTree(t, source, filepath.Join(root, c.dest))
	}
	return root
}

// makeLinks makes what the Dockerfile's first stage does by ln -s TARGET /links/NAME.
func makeLinks(t *testing.T, dest string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(servers.Root(t), "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`ln -s (\S+) /links/(\S+)`).FindAllStringSubmatch(string(content), -1)
	if len(links) == 0 {
		t.Fatal("the Dockerfile copies /links, and makes none")
	}
	if err := os.MkdirAll(dest, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if err := os.Symlink(link[1], filepath.Join(dest, link[2])); err != nil {
			t.Fatal(err)
		}
	}
}

// makeVolume makes an empty folder that belongs to the image's user.
func makeVolume(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return // this user is the image's: see container
	}
	if err := os.Chown(path, imageUser, imageUser); err != nil {
		t.Fatal(err)
	}
}

// A volume is a folder of the image that belongs to its user, or else a container could not write to a new one.
func TestVolumes(t *testing.T) {
	image := loadImage(t)
	if len(image.volumes) == 0 {
		t.Error("nothing can be written to, not even the rules that are made through the API")
	}
	for _, volume := range image.volumes {
		owned := slices.ContainsFunc(image.copied, func(c copied) bool { return c.dest == volume && c.owner == image.user })
		if !owned {
			t.Errorf("the volume %s does not belong to the user %s", volume, image.user)
		}
	}
	for name, service := range loadCompose(t).Services {
		if name != "weir" {
			continue
		}
		for _, volume := range image.volumes {
			if !slices.ContainsFunc(service.Volumes, func(mount types.ServiceVolumeConfig) bool {
				return mount.Type == types.VolumeTypeVolume && mount.Target == volume && mount.Source != ""
			}) {
				t.Errorf("the compose file keeps nothing of what is written to %s", volume)
			}
		}
	}
}

// buildBinary runs the command by which the image's binary is built.
func buildBinary(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "weir")
	makeOutput(t, "--silent", "build", "BIN="+binary, "VERSION=v1.2.3-test")
	return binary
}

// copyTree copies a file or a folder, readable by everyone and writable by its owner alone.
func copyTree(t *testing.T, source, dest string) {
	t.Helper()
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dest, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, content, info.Mode().Perm()|0o444)
	})
	if err != nil {
		t.Fatalf("copy %s: %v", source, err)
	}
}

func TestBinaryIsStatic(t *testing.T) {
	file, err := elf.Open(buildBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP || program.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a %s segment: it needs a loader that the image does not have", program.Type)
		}
	}
}
