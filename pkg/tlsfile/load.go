package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// ErrFiles is wrapped by every error about a file that cannot be used.
var ErrFiles = errors.New("TLS files cannot be used")

// maxFileBytes bounds what is read of one file.
const maxFileBytes = 4 << 20

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes: is it the right file?", path, maxFileBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	return text, nil
}

// loadPair reads a certificate chain and its key. Leaf is set.
func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	if certFile == "" || keyFile == "" {
		return nil, fmt.Errorf("%w: a certificate and its key belong together: set both files (certificate %q, key %q)", ErrFiles, certFile, keyFile)
	}
	chain, err := readFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := readFile(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate %s and key %s: %w", ErrFiles, certFile, keyFile, err)
	}
	return &pair, nil
}

// loadCAs reads a file of CA certificates.
func loadCAs(path string) (*x509.CertPool, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM form", ErrFiles, path)
	}
	return pool, nil
}
