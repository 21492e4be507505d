package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/pkg/auth"
)

func newToken() *cobra.Command {
	command := &cobra.Command{
		Use:   "token",
		Short: "Make bearer tokens for the API, and the lines that a server knows them by",
		Long: `token makes what the file auth.tokens_file of a server lists: subject, role and the hash of each token. The server never
sees a token in its file, and weir keeps none.`,
		Example: `  weir token new --subject ci --role sys_operator
  weir token hash --subject ci --role sys_operator < token.txt`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newTokenNew(), newTokenHash())
	return command
}

// listing is whom a token is for.
type listing struct {
	subject, role, format string
}

func (l *listing) flags(command *cobra.Command) {
	command.Flags().StringVar(&l.subject, "subject", "", "`NAME` that the audit log will show (required)")
	command.Flags().StringVar(&l.role, "role", auth.Auditor.String(), "`ROLE`: sys_auditor, sys_operator or sys_admin")
	formatFlag(command, &l.format)
}

func (l *listing) check() error {
	if err := checkFormat(l.format); err != nil {
		return err
	}
	if l.subject == "" {
		return errors.New("--subject is missing: name who will use the token, such as --subject ci")
	}
	if len(l.subject) > auth.MaxSubject || shown(l.subject) != l.subject {
		return fmt.Errorf("--subject %q: write at most %d bytes of text", l.subject, auth.MaxSubject)
	}
	if _, err := auth.ParseRole(l.role); err != nil {
		return fmt.Errorf("--role: %w", err)
	}
	return nil
}

// entry is one token's place in a token file.
type entry struct {
	Token   string `json:"token,omitempty" yaml:"token,omitempty"`
	Subject string `json:"subject" yaml:"subject"`
	Role    string `json:"role" yaml:"role"`
	Hash    string `json:"hash" yaml:"hash"`
}

// line is the entry as a token file has it. Strings of Go without control characters are strings of YAML.
func (e *entry) line() string {
	return fmt.Sprintf("- {subject: %q, role: %s, hash: %q}", e.Subject, e.Role, e.Hash)
}

func newTokenNew() *cobra.Command {
	var options listing
	command := &cobra.Command{
		Use:   "new --subject NAME [--role ROLE]",
		Short: "Make a token and the line for a token file",
		Long: `new makes a token of 256 random bits. It is printed this once: give it to who will use it, and the line below it to the
server's auth.tokens_file, under "tokens:".

Exit status: 0 made, 2 a wrong flag.`,
		Example: `  weir token new --subject ci --role sys_operator
  weir token new --subject ann -o json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := options.check(); err != nil {
				return err
			}
			token, hash := auth.NewToken()
			made := entry{token, options.subject, options.role, hash}
			return printAs(command.OutOrStdout(), options.format, made, func(w io.Writer) {
				fmt.Fprintf(w, "# The token, shown this once.\n%s\n\n# Its line in auth.tokens_file, under \"tokens:\".\n%s\n", token, made.line())
			})
		},
	}
	options.flags(command)
	return command
}

func newTokenHash() *cobra.Command {
	var options listing
	command := &cobra.Command{
		Use:   "hash --subject NAME [--role ROLE] < FILE",
		Short: "Print the line for a token file, of a token that was made elsewhere",
		Long: `hash reads a token from standard input, since arguments can be seen by every user of a machine, and prints the line for
the server's auth.tokens_file. The token must be random: its hash protects no password.

Exit status: 0 printed, 2 no token that can be used, or a wrong flag.`,
		Example: `  weir token hash --subject ci --role sys_operator < token.txt`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := options.check(); err != nil {
				return err
			}
			text, err := io.ReadAll(io.LimitReader(command.InOrStdin(), maxTokenFile+1))
			if err != nil {
				return fmt.Errorf("read the token from standard input: %w", err)
			}
			hash, err := auth.HashToken(strings.TrimSpace(string(text)))
			if err != nil {
				return err
			}
			made := entry{Subject: options.subject, Role: options.role, Hash: hash}
			return printAs(command.OutOrStdout(), options.format, made, func(w io.Writer) { fmt.Fprintln(w, made.line()) })
		},
	}
	options.flags(command)
	return command
}
