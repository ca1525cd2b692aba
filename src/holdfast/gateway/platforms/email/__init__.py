"""E-mail as a messaging platform: IMAP in, SMTP out."""
