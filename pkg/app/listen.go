package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// listenTCP opens host:port. setting is the name of the port's setting, for the error.
func listenTCP(ctx context.Context, host string, port int, setting string) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is taken by another process: stop it, or set another port", setting, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: no right to listen on %s: set a port above 1023", setting, address)
	default:
		return nil, fmt.Errorf("%s: listen on %s: %w", setting, address, err)
	}
}

// listenUnix opens a unix socket at path, which its group may use too. A socket that a dead process left there is taken
// over; one that a living process serves is not.
func listenUnix(ctx context.Context, path, setting string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("%s: %s exists and is no socket: remove it, or set another path", setting, path)
		}
		dialer := net.Dialer{Timeout: time.Second}
		if connection, err := dialer.DialContext(ctx, "unix", path); err == nil {
			_ = connection.Close()
			return nil, fmt.Errorf("%s: another process serves %s: stop it, or set another path", setting, path)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: remove the dead socket: %w", setting, err)
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%s: listen on %s: %w", setting, path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return listener, nil
}
