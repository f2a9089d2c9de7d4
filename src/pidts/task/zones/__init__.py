"""Operations on several zones while their tasks run: moving ownership, and handing changes over to direct tasks."""
