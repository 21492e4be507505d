package packaging

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/weirhq/weir/test/kong"
	"github.com/weirhq/weir/test/servers"
)

// container is how the image is run without a container engine: in a root folder that holds nothing else and that nobody
// may write to, as the image's user, with the environment of the compose file.
type container struct {
	root string
	env  []string
}

// command prepares a program of the image. Its path is the one inside the image.
func (c container) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", c.env
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     c.root,
		Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser, NoSetGroups: true},
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 { // a user of their own namespace may do it too
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// The compose file's services, each played by the real program, do what the file's first lines promise.
func TestComposeDemo(t *testing.T) {
	project, image := loadCompose(t), loadImage(t)
	redis, upstream := servers.Redis(t), servers.Upstream(t)
	grpc, fast, web := servers.Address(servers.FreePort(t)), servers.Address(servers.FreePort(t)), servers.Address(servers.FreePort(t))

	service := project.Services["weir"]
	weir := container{root: layOut(t)}
	before := lock(t, weir.root, image.volumes)
	weir.env = append(weir.env, image.env...)
	for name, value := range service.Environment {
		weir.env = append(weir.env, name+"="+strings.ReplaceAll(*value, "redis:6379", redis.Addr()))
	}
	weir.env = append(weir.env, "WEIR_SERVER_HOST=127.0.0.1", "WEIR_SERVER_DRAIN_DELAY=100ms",
		"WEIR_AUTH_INSECURE=true", "WEIR_SERVER_GRPC_PORT="+port(t, grpc), "WEIR_SERVER_FAST_PORT="+port(t, fast), "WEIR_SERVER_PORT="+port(t, web))

	process := servers.StartCommand(t, "weir", weir.command(t.Context(), slices.Concat(image.entrypoint, image.command)))
	ready := process.Await(t, func() bool { return status(t, "http://"+web+"/readyz", nil) == http.StatusOK })
	if !ready {
		t.Fatalf("weir ended while starting (%v); its output:\n%s", process.Err(), process.Log())
	}

	check := func() error {
		test := replaceAll(service.HealthCheck.Test, "127.0.0.1:50051", grpc)
		return weir.command(t.Context(), execHealthCheck(t, test)).Run()
	}
	if err := check(); err != nil {
		t.Errorf("weir's health check fails while it is ready: %v", err)
	}

	envoy := servers.Envoy(t, servers.EnvoyOptions{Clusters: map[string][]string{"ratelimit": {fast}, "echo": {upstream.Addr()}}})
	envoy.AwaitHealthy("ratelimit", 1)
	test := replaceAll(project.Services["envoy"].HealthCheck.Test, "127.0.0.1/9901", strings.Replace(envoy.AdminAddr(), ":", "/", 1))
	probe := execHealthCheck(t, test)
	if output, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput(); err != nil {
		t.Errorf("Envoy's health check fails while it is live: %v: %s", err, output)
	}

	// Kong itself is played, the plugin that does its limiting is the real one.
	kongs := kong.Start(t, 2).Front(filepath.Join(servers.Root(t), "examples", "kong", "kong.yml"), map[string]string{"weir:50051": grpc, "echo:8088": upstream.Addr()})
	first, second, third := demoURLs(t)
	at := strings.NewReplacer("http://127.0.0.1:10000", envoy.URL("ingress"), "http://127.0.0.1:10001", envoy.URL("ingress-2"), "http://127.0.0.1:8000", kongs)
	for _, url := range []string{kongs + "/", at.Replace(third[0])} { // both of Kong's routes let a first request pass
		if code := status(t, url, nil); code != http.StatusOK {
			t.Errorf("%s of Kong is answered %d before the limit is reached, want 200", url, code)
		}
	}
	if code := status(t, at.Replace(first[0]), nil); code != http.StatusOK {
		t.Errorf("the first line of the demo is answered %d, want 200", code)
	}
	codes := make([]int, len(second))
	for i, url := range second {
		codes[i] = status(t, at.Replace(url), nil)
	}
	if codes[0] != http.StatusOK || codes[len(codes)-1] != http.StatusTooManyRequests {
		t.Errorf("the second line of the demo is answered %v, want 200 that turns into 429", codes)
	}
	if code := status(t, at.Replace(third[0]), nil); code != http.StatusTooManyRequests {
		t.Errorf("the third line of the demo is answered %d, want 429: Envoy's requests have used the limit up", code)
	}
	if passed := upstream.Requests(); int(passed) >= 3+len(second) {
		t.Errorf("all %d requests reached the upstream", passed)
	}
	if keys := redis.Do("dbsize"); keys == int64(0) {
		t.Error("weir keeps no counters in Redis")
	}

	// The root folder is read-only, and rules can be made all the same.
	rule := `{"scope": "user", "identifier_pattern": "ann", "limit": 5, "window_seconds": 60}`
	if code, body := post(t, "http://"+web+"/api/v1/ratelimit/rules", rule); code != http.StatusCreated {
		t.Errorf("a rule made through the API is answered %d: %s", code, body)
	}

	process.Signal(syscall.SIGTERM)
	if err := process.Err(); err != nil {
		t.Errorf("after SIGTERM weir ended with: %v", err)
	}
	if check() == nil {
		t.Error("weir's health check passes while it is stopped")
	}
	if after := tree(t, weir.root, image.volumes); !slices.Equal(before, after) {
		t.Errorf("weir changed its root folder: %v, before %v", after, before)
	}
}

// demoURLs returns the URLs of the three curl lines at the top of the compose file: two of Envoy's and one of Kong's. Like curl,
// it takes [1-9] for nine URLs.
func demoURLs(t *testing.T) (first, second, third []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(servers.Root(t), "docker-compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^#   curl -i '?(http://[^' ]+)`).FindAllStringSubmatch(string(content), -1)
	if len(lines) != 3 {
		t.Fatalf("the compose file shows %d curl lines, want 3", len(lines))
	}
	return expand(t, lines[0][1]), expand(t, lines[1][1]), expand(t, lines[2][1])
}

func expand(t *testing.T, url string) []string {
	t.Helper()
	span := regexp.MustCompile(`\[(\d+)-(\d+)\]`)
	match := span.FindStringSubmatch(url)
	if match == nil {
		return []string{url}
	}
	from, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	to, err := strconv.Atoi(match[2])
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for i := from; i <= to; i++ {
		urls = append(urls, span.ReplaceAllString(url, strconv.Itoa(i)))
	}
	return urls
}

// execHealthCheck returns the program of a compose health check that needs no shell.
func execHealthCheck(t *testing.T, test types.HealthCheckTest) []string {
	t.Helper()
	if len(test) < 2 || test[0] != "CMD" {
		t.Fatalf("health check %q: want CMD and a program", test)
	}
	return test[1:]
}

func replaceAll(words []string, old, replacement string) []string {
	replaced := make([]string, len(words))
	for i, word := range words {
		replaced[i] = strings.ReplaceAll(word, old, replacement)
	}
	return replaced
}

// status asks a URL and returns the status code, 0 if nobody answers.
func status(t *testing.T, url string, header http.Header) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// post sends a JSON document.
func post(t *testing.T, url, document string) (code int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// lock makes everything below a folder but the volumes read-only until the test ends, and returns what is there.
func lock(t *testing.T, root string, volumes []string) []string {
	t.Helper()
	chmod := func(write fs.FileMode) {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if isVolume(root, path, volumes) {
				return fs.SkipDir
			}
			if entry.Type() == fs.ModeSymlink {
				return nil // it has no permissions, and leads to a path inside the image
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			return os.Chmod(path, info.Mode().Perm()&^0o222|write)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	chmod(0)
	t.Cleanup(func() { chmod(0o200) })
	return tree(t, root, volumes)
}

func isVolume(root, path string, volumes []string) bool {
	return slices.ContainsFunc(volumes, func(volume string) bool { return path == filepath.Join(root, volume) })
}

// tree lists everything below a folder but the volumes, with modes, sizes and times.
func tree(t *testing.T, root string, volumes []string) []string {
	t.Helper()
	var entries []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if isVolume(root, path, volumes) {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		entries = append(entries, strings.Join([]string{
			path, info.Mode().String(), strconv.FormatInt(info.Size(), 10), info.ModTime().String(),
		}, " "))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}
