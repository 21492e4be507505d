//go:build gateway && linux

package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside is set in the process that runs in the namespaces.
const inside = "WEIR_TEST_GATEWAY_INSIDE"

// TestMain runs the tests once more in namespaces of their own, and their result is its result.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		if err := settle(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	os.Exit(enter())
}

func enter() int {
	command := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it lives as long as this process
	command.Env = append(os.Environ(), inside+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		// With the process namespace whatever outlives its parent inside ends with it.
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 { // who is nobody special is root of a user namespace
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	err := command.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "start in namespaces: %v: the test needs root, or a system that lets users have namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces)\n", err)
		return 1
	}
	return 0
}

// settle keeps what is mounted from here on out of the system, and brings the loopback interface up.
func settle() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// root is a root folder that shows all of the system but /etc, of which there are only these files and what programs need to run at all, and
// /certs, which is another folder.
func root(t *testing.T, etc map[string][]byte, certs string) string {
	t.Helper()
	// Not below another mount that it would show within itself.
	path, err := os.MkdirTemp("", "weir-root")
	if err != nil {
		t.Fatal(err)
	}
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatalf("mount %s on %s: %v", source, target, err)
		}
	}
	mount("tmpfs", path, "tmpfs", 0)
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // a root folder, which all may read
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "certs" && entry.Name() != "etc" {
			show(t, mount, filepath.Join("/", entry.Name()), filepath.Join(path, entry.Name()), entry.Type())
		}
	}
	if err := os.Mkdir(filepath.Join(path, "certs"), 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	mount(certs, filepath.Join(path, "certs"), "", unix.MS_BIND)
	for _, name := range []string{"ld.so.cache", "passwd", "group", "nsswitch.conf"} {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		file(t, filepath.Join(path, "etc", name), content)
	}
	for name, content := range etc {
		file(t, filepath.Join(path, "etc", name), content)
	}
	return path
}

// file writes a file that all may read, and the folders that it is in.
func file(t *testing.T, path string, content []byte) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // see above
	if err == nil {
		err = os.WriteFile(path, content, 0o644) //nolint:gosec // see above
	}
	if err != nil {
		t.Fatal(err)
	}
}

// show makes an entry of the system's root folder visible in another.
func show(t *testing.T, mount func(source, target, kind string, flags uintptr), source, target string, kind fs.FileMode) {
	t.Helper()
	switch {
	case kind&fs.ModeSymlink != 0:
		to, err := os.Readlink(source)
		if err == nil {
			err = os.Symlink(to, target)
		}
		if err != nil {
			t.Fatal(err)
		}
	case kind.IsDir():
		if err := os.Mkdir(target, 0o755); err != nil { //nolint:gosec // a mount point
			t.Fatal(err)
		}
		mount(source, target, "", unix.MS_BIND|unix.MS_REC)
	}
}
